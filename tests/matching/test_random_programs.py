"""Random compositions of spellings: each attention is found with its scale, band and heads, each fault is seen.

Every program is captured by Dynamo or by torch.export, goes through the pass, and is then interpreted node by node in
eager: the operators' CPU reference computes what is fused. Outputs and gradients are compared with eager in float64.
A few programs are compiled in full for the simulated device, kernels and all.

MPS_ATTENTION_PROGRAMS=20000 pytest tests/matching/test_random_programs.py -n 2      runs as many, from other seeds.
"""

from __future__ import annotations

import os

import pytest
import torch

import inductor_mps_attention as ima

from .harness import Result, close, fuse, in_float64, run_eager
from .programs import Program, program

IN_CI, GROUPS = 520, 20
WANTED = int(os.environ.get("MPS_ATTENTION_PROGRAMS", IN_CI))
# Scores of half precision are rounded in eager; q and k that are scaled before the product are rounded in both.
BUDGETS = {torch.float32: (2e-6, 1e-5), torch.float16: (2e-3, 4e-3), torch.bfloat16: (1.5e-2, 3e-2)}


@pytest.mark.parametrize("group", range(GROUPS))
def test_programs(group: int) -> None:
    for seed in range(group, WANTED, GROUPS):
        made = program(seed)
        result = fuse(made.function, *made.inputs, grad=made.grad, **made.level)
        try:
            check(made, result)
        except AssertionError as error:
            raise AssertionError(f"{made}: {error}") from error


def check(made: Program, result: Result) -> None:
    if made.fault is None:
        spec = result.fused().sites[0].spec
        assert spec is not None
        # Python floats that Dynamo makes symbols of go onto q; the numbers check them.
        on_q = made.level == {"dynamic": True} and spec.scale == 1.0
        assert on_q or spec.scale == pytest.approx(made.scale), f"scale {spec.scale}"
        assert (spec.band.lower, spec.band.upper) == made.band, str(spec.band)
        assert made.kv_heads is None or spec.kv_heads == made.kv_heads, f"{spec.kv_heads} key heads"
        result.equals_fp64(*BUDGETS[made.dtype])
        return
    assert not any(site.fused for site in result.sites), "fused in spite of the fault"
    assert all(site.reasons for site in result.sites), "declined without a reason"
    if made.dtype is torch.float32:
        result.equals_fp64()


@pytest.mark.parametrize("seed", [2, 5, 11])
def test_compiled_programs(seed: int) -> None:
    """The same in full: Inductor, Metal text, and the simulated device."""
    made = next(made for made in map(program, range(1000 * seed, 1000 * seed + 100)) if compiles(made))
    inputs = tuple(t.to("mps").requires_grad_() for t in made.inputs)
    compiled = torch.compile(made.function, backend="mps_attention", dynamic=made.level.get("dynamic"))
    outputs, gradients = run_eager(lambda *inputs: compiled(*inputs).cpu(), inputs, grad=True)
    assert ima.stats()["fused"] == 1, str(made)
    doubles = tuple(t.detach().cpu().double().requires_grad_() for t in inputs)
    wanted, wanted_gradients = run_eager(in_float64(made.function), doubles, grad=True)
    close(outputs[0], wanted[0], 5e-6, str(made))
    for got, oracle in zip(gradients, wanted_gradients, strict=True):
        close(got.cpu(), oracle, 2e-5, str(made))


def compiles(made: Program) -> bool:
    """No fault, float32, and no mask: the programs make theirs on the CPU."""
    return made.fault is None and made.dtype is torch.float32 and made.band == (None, None)


def test_a_missed_fault_is_seen() -> None:
    """Guards the tests: a program whose fault is not declared must fail."""
    made = next(made for made in map(program, range(1000)) if made.fault == "softcap" and made.dtype is torch.float32)
    result = fuse(made.function, *made.inputs, grad=made.grad, **made.level)
    made.fault = None
    with pytest.raises(AssertionError, match="0 fused of 1"):
        check(made, result)
