"""Operands of a kernel in Inductor's graph: inputs with dense rows, outputs laid out as the fakes are.

The backward graph was traced with the strides of the fakes, so outputs must have exactly these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch import Tensor
from torch._inductor import ir
from torch._inductor.lowering import empty_strided
from torch._inductor.virtualized import V

from inductor_mps_attention.codegen import VECTOR_BYTES


def in_memory(box: Any) -> Any:
    """The tensor in memory, with strides that are final: itself or a view of its buffer, else a copy."""
    box = ir.ExternKernel.realize_input(box)
    ir.as_storage_and_layout(box, freeze=True)
    return box


def dense_rows(box: Any) -> Any:
    """The tensor in memory with a last dim of stride 1: itself or a view of its buffer, else a copy."""
    box = in_memory(box)
    if _known_equal(box.get_stride()[-1], 1) or _known_equal(box.get_size()[-1], 1):
        return box
    return contiguous(box)


def contiguous(box: Any) -> Any:
    """The tensor in memory in row-major order, copied only where it is not."""
    box = ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(box))
    ir.as_storage_and_layout(box, freeze=True)
    return box


def empty_like_fake(fake: Tensor) -> Any:
    """A buffer of Inductor's with the fake's sizes and strides, and nothing in it yet."""
    return empty(expressions(fake.shape), expressions(fake.stride()), fake.dtype, fake.device)


def empty(
    sizes: Sequence[sympy.Expr], strides: Sequence[sympy.Expr] | None, dtype: torch.dtype, device: torch.device
) -> Any:
    """A buffer of Inductor's, row-major without strides."""
    box = empty_strided(list(sizes), None if strides is None else list(strides), dtype=dtype, device=device)
    box.realize()
    return box


def rows_aligned(box: Any) -> bool:
    """Is each row known to start at a multiple of 16 bytes?

    Inductor's buffers do, and its wrapper copies graph inputs that do not, unless it has noted them as unaligned.
    """
    if box.get_name() in V.graph.unaligned_buffers:
        return False
    step = VECTOR_BYTES // box.get_dtype().itemsize
    strides, sizes = box.get_stride()[:-1], box.get_size()[:-1]
    starts = [stride for stride, size in zip(strides, sizes, strict=True) if not _known_equal(size, 1)]
    return all(
        V.graph.sizevars.statically_known_multiple_of(sympy.sympify(start), step)
        for start in (box.get_layout().offset, *starts)
    )


def simplified(size: Any) -> sympy.Expr:
    """A size, stride or bound of the graph as Inductor's simplest expression."""
    return V.graph.sizevars.simplify(sympy.sympify(size))


def _known_equal(size: Any, value: int) -> bool:
    return bool(V.graph.sizevars.statically_known_equals(size, value))


def expressions(sizes: Sequence[Any]) -> list[sympy.Expr]:
    """Sizes or strides of a fake tensor as Inductor's expressions."""
    return [size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size) for size in sizes]
