"""Compiles rendered Metal text once and launches it on tensors. Knows no operators, no graphs and no matching."""

from inductor_mps_attention.codegen import Role

from .compiled import clear
from .launch import launch, problem_of, unsupported
from .tally import launches, reset_launches

__all__ = ["Role", "clear", "launch", "launches", "problem_of", "reset_launches", "unsupported"]
