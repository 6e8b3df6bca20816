"""Inductor's C++ wrapper for MPS, which AOTInductor uses too: refused in one sentence.

The C++ that it writes calls functions of libtorch (`aoti_torch_mps_...`) that only a build with MPS has. Without
this module Inductor writes it all the same, and ends in a page of errors of the C++ compiler.
"""

from __future__ import annotations

import sys
import types
from typing import Any, NoReturn

from inductor_mps_attention.simulator.errors import SimulatorError

_MODULE = "torch._inductor.codegen.cpp_wrapper_mps"


class CppWrapperMps:
    """Stands in for Inductor's class of this name."""

    supports_caching = False  # Inductor asks this before it makes one; there is never a result to keep

    @staticmethod
    def create(*_arguments: Any, **_keywords: Any) -> NoReturn:
        """Inductor asks for a wrapper here, before it writes any code."""
        raise SimulatorError(
            "the simulated mps device has no C++ runtime: cpp_wrapper and AOTInductor need an MPS build of PyTorch"
        )


def refuse_cpp_wrapper() -> None:
    """Inductor meets the refusal, whether it has been imported or not: importing it here would cost seconds."""
    imported: Any = sys.modules.get(_MODULE)
    if imported is not None:
        imported.CppWrapperMps.create = CppWrapperMps.create
        return
    stand_in: Any = types.ModuleType(_MODULE, __doc__)
    stand_in.CppWrapperMps = CppWrapperMps
    sys.modules[_MODULE] = stand_in
