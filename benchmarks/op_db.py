"""PyTorch's own operator database on the simulated mps device, against the CPU.

    python -m benchmarks.op_db [--samples N] [--compile] [--operators add,softmax] [--part K/N]

Eager: values, gradients, dtypes and strides are compared. With --compile each program goes once through Inductor and
its Metal text is run; strides are left to Inductor. Prints what does not agree and why; exits with 1 if something
differs that is not in the tables below. Needs the package `expecttest`, as the database does.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from inductor_mps_attention import simulator

simulator.install()

Verdict = Literal["agrees", "known difference", "no MPS kernel", "not comparable", "DIFFERS"]

# Their values are whatever is in memory: only dtype, shape and strides are compared.
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

_SPARSE = "there are no sparse tensors on the simulated device"
_ROWS = "PyTorch lays this result out otherwise on MPS than on the CPU, row by row; the values agree"
_STRIDES = "the strides of the result are not the CPU's; the values agree"
_NO_METAL = "Inductor has no Metal for it: NotImplementedError"
_UNDERFLOW = "Inductor's formula takes erfc, which underflows in float32 where |x| is large"
_COUNTED = "Inductor's Metal hands a long array to an int sum, which does not compile"
_EVALUATED = "PyTorch's decomposition saves the statistics of evaluation too, on every device but the CPU"
_DOUBLE = "PyTorch's decomposition computes in float64, which the device does not have"

# Compiled with torch 2.13.0, all 693 operators and two samples each are as this file says.
# Operator -> why it is not as on the CPU. An operator that is not in a table must agree.
KNOWN_IN_EAGER = {
    "sparse.mm.reduce": _SPARSE,
    "sparse.sampled_addmm": _SPARSE,
    "to_sparse": _SPARSE,
    "tensor_split": "wants the tensor of split points on the CPU, on every device",
    "linalg.lu_factor": _ROWS,
    "linalg.lu_factor_ex": _ROWS,
    "lu": _ROWS,
    "linalg.solve": _STRIDES,
    "linalg.solve_ex": _STRIDES,
}
KNOWN_WHEN_COMPILED = {
    **dict.fromkeys(["acosh", "asinh", "copysign", "cosh", "frexp", "hypot", "logical_xor", "nextafter"], _NO_METAL),
    **dict.fromkeys(["sinh", "special.airy_ai", "special.laguerre_polynomial_l", "special.ndtri"], _NO_METAL),
    **dict.fromkeys(["special.legendre_polynomial_p"], _NO_METAL),
    **dict.fromkeys(["special.erfcx", "special.log_ndtr"], _UNDERFLOW),
    **dict.fromkeys(["masked.std", "masked.var"], _COUNTED),
    **dict.fromkeys(["native_batch_norm", "_native_batch_norm_legit"], _EVALUATED),
    "linalg.tensorsolve": _STRIDES,
    **dict.fromkeys(["logspace", "logspace.tensor_overload", "to"], _DOUBLE),
}


@dataclass(frozen=True)
class Outcome:
    """What became of one operator's samples; `detail` says more where they do not agree."""

    operator: str
    verdict: Verdict
    samples: int
    detail: str = ""


class NotComparable(Exception):
    """A sample that the CPU refuses, or whose types the device does not have."""


def database() -> list[Any]:
    """The operators that have samples of float32, or else of int64."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if _dtype(op) is not None]


def name_of(op: Any) -> str:
    """The operator's name with its variant, as in "var_mean.unbiased"."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def check(op: Any, samples: int, compiled: bool = False) -> Outcome:
    """Runs up to `samples` samples of one operator on the CPU and on the device."""
    name, compared = name_of(op), 0
    known = KNOWN_IN_EAGER | KNOWN_WHEN_COMPILED if compiled else KNOWN_IN_EAGER
    for sample in itertools.islice(_samples(op), samples):
        difference = _difference(op, sample, compiled)
        if difference is None:
            continue
        if "not currently implemented for the MPS device" in difference:
            return Outcome(name, "no MPS kernel", compared, difference.partition(" As a temporary fix")[0])
        if difference and name in known:
            return Outcome(name, "known difference", compared, known[name])
        if difference:
            return Outcome(name, "DIFFERS", compared, difference)
        compared += 1
    return Outcome(name, "agrees" if compared else "not comparable", compared)


def _difference(op: Any, sample: tuple[Any, Any, Any], compiled: bool) -> str | None:
    """What is not as on the CPU; "" if nothing is, None if there is nothing to compare."""
    try:
        _compare_sample(op, sample, compiled)
    except NotComparable:
        return None
    except Exception as error:  # whatever the device raises is the finding
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""


def _dtype(op: Any) -> torch.dtype | None:
    return next((dtype for dtype in (torch.float32, torch.int64) if dtype in op.dtypes), None)


def _samples(op: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(input, args, kwargs) on the CPU. The database draws them from the global generator."""
    dtype = _dtype(op)
    torch.manual_seed(0)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd and dtype == torch.float32):
        yield sample.input, sample.args, sample.kwargs


def _compare_sample(op: Any, sample: tuple[Any, Any, Any], compiled: bool) -> None:
    wanted_inputs = tree_map(lambda value: _moved(value, "cpu"), sample)
    try:
        wanted = _run(op.op, wanted_inputs)
    except Exception as error:  # some samples need what this build lacks; nothing to compare with
        raise NotComparable from error
    _refuse_double_precision([*tree_leaves(sample), *wanted])
    got_inputs = tree_map(lambda value: _moved(value, "mps"), sample)
    if "device" in got_inputs[2]:
        got_inputs[2]["device"] = "mps"
    got = _run(torch.compile(op.op, dynamic=False) if compiled else op.op, got_inputs)
    values_too = name_of(op) not in UNINITIALISED
    for there, here in zip(got, wanted, strict=True):
        _assert_equal(there, here, values=values_too, strides=not compiled)
    for there, here in zip(tree_leaves(got_inputs), tree_leaves(wanted_inputs), strict=True):
        if isinstance(here, Tensor) and here.grad is not None:
            _assert_equal(there.grad, here.grad, values=True, strides=False)


def _moved(value: Any, device: str) -> Any:
    """A tensor's own copy as a leaf on `device`; other values as they are."""
    if isinstance(value, torch.device):
        return torch.device(device)
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().to(device).requires_grad_(value.requires_grad)


def _run(function: Callable[..., Any], inputs: tuple[Any, Any, Any]) -> list[Tensor]:
    """The tensors of the result; the sum of those that can be differentiated has been."""
    torch.manual_seed(0)
    results = [r for r in tree_leaves(function(inputs[0], *inputs[1], **inputs[2])) if isinstance(r, Tensor)]
    real = [result.sum() for result in results if result.requires_grad and result.is_floating_point()]
    if real:
        torch.stack(real).sum().backward()
    return results


def _refuse_double_precision(values: list[Any]) -> None:
    if any(isinstance(v, Tensor) and v.dtype in (torch.float64, torch.complex128) for v in values):
        raise NotComparable


def _assert_equal(there: Tensor, here: Tensor, *, values: bool, strides: bool) -> None:
    assert there.device.type == "mps", f"a result is on {there.device}"
    assert there.dtype == here.dtype, f"dtype {there.dtype}, on the CPU {here.dtype}"
    assert there.shape == here.shape, f"shape {tuple(there.shape)}, on the CPU {tuple(here.shape)}"
    if strides:
        assert there.stride() == here.stride(), f"strides {there.stride()}, on the CPU {here.stride()}"
    if values:
        torch.testing.assert_close(there.detach().cpu(), here.detach(), equal_nan=True, rtol=1e-4, atol=1e-4)


def outcomes(operators: list[Any], samples: int, compiled: bool) -> Iterator[Outcome]:
    """One outcome an operator, as it is found. Compiled programs draw random numbers as eager ones do."""
    with torch._inductor.config.patch(force_disable_caches=True, fallback_random=True):
        for op in operators:
            torch._dynamo.reset()
            yield check(op, samples, compiled)


def _chosen(names: str, part: str) -> list[Any]:
    wanted = set(filter(None, names.split(",")))
    operators = [op for op in database() if not wanted or {op.name, name_of(op)} & wanted]
    index, parts = map(int, part.split("/"))
    return operators[index - 1 :: parts]


def main() -> int:
    parser = argparse.ArgumentParser(description="PyTorch's operator database on the simulated mps device.")
    parser.add_argument("--samples", type=int, default=2, help="samples an operator, default 2")
    parser.add_argument("--compile", action="store_true", help="through Inductor, its Metal text run")
    parser.add_argument("--operators", default="", help="names, separated by commas; default all")
    parser.add_argument("--part", default="1/1", help="K/N: the K-th of N parts of the database")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    for outcome in outcomes(_chosen(options.operators, options.part), options.samples, options.compile):
        counts[outcome.verdict] += 1
        if outcome.verdict not in ("agrees", "not comparable"):
            print(f"{outcome.operator:40} {outcome.verdict:17} {outcome.detail[:160]}", flush=True)
    print(f"torch {torch.__version__}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["DIFFERS"] else 0


if __name__ == "__main__":
    sys.exit(main())
