"""Which operators a real MPS build has kernels for, from the list of operators that PyTorch ships."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import torch

from inductor_mps_attention.simulator.errors import SimulatorError

# A real build sends these to the CPU by itself (MPSFallback.mm), though the list gives them no MPS kernel.
_CPU_BY_DESIGN = ("embedding_renorm_", "_linalg_svd.U", "col2im")


def supported_operators() -> Iterator[str]:
    """Names such as "aten::add.Tensor", one for each operator that runs on a real MPS device."""
    package = importlib.util.find_spec("torchgen")
    if package is None or package.origin is None:
        raise SimulatorError("this PyTorch comes without torchgen, whose list of operators the simulated device reads")
    text = (Path(package.origin).parent / "packaged/ATen/native/native_functions.yaml").read_text()
    # Split by hand: a YAML parser takes 40 times as long over this file, at every start.
    for entry in text.split("\n- func: ")[1:]:
        if "MPS" in _dispatch_keys(entry):
            yield "aten::" + entry.partition("(")[0]
    for name in _CPU_BY_DESIGN:
        yield "aten::" + name


def hidden_by_composites() -> list[str]:
    """Operators with an MPS kernel in a real build that would be taken apart here.

    Where an operator has a composite kernel, PyTorch prefers it to the fallback of a device.
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    composites = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
    return [
        name
        for name in supported_operators()
        if has_kernel(name, "CPU") and not has_kernel(name, "MPS") and any(has_kernel(name, key) for key in composites)
    ]


def _dispatch_keys(entry: str) -> Iterator[str]:
    """The keys of lines such as "    CPU, CUDA, MPS: add_out  # comment"."""
    for line in entry.splitlines()[1:]:
        keys, colon, _ = line.partition("#")[0].rpartition(":")
        if colon:
            yield from (key.strip() for key in keys.split(","))
