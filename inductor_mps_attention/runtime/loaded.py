"""What Inductor's output code calls: one kernel by its text, compiled at the first call, counted at each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.autograd import forward_ad

from inductor_mps_attention.codegen import KernelSource, Role

from ..errors import UnsupportedAttention
from . import compiled, tally


class LoadedKernel:
    """A kernel whose outputs, inputs and integers the caller has at hand. It allocates nothing."""

    __slots__ = ("_kernel", "_role", "_source")

    def __init__(self, role: Role, source: KernelSource):
        self._role, self._source = role.value, source
        self._kernel: Any = None

    def __call__(self, *args: Any, threads: Sequence[int], group_size: Sequence[int]) -> None:
        """One launch: tensors in the order of the text, then integers. A grid without threads is no launch.

        Raises KernelCompileError, at the first call and again at every next one until the text compiles, and
        UnsupportedAttention within `forward_ad.dual_level`: compiled code runs below autograd, where tangents, if
        there are any, cannot be seen and would be dropped.
        """
        if forward_ad._current_level >= 0:
            raise UnsupportedAttention("forward-mode differentiation of flash attention is not implemented")
        if 0 in threads:
            return
        if self._kernel is None:
            self._kernel = compiled.kernel(self._source)
        self._kernel(*args, threads=threads, group_size=group_size)
        tally.count(self._role)


def load_kernel(role: str, entry: str, text: str) -> LoadedKernel:
    """The kernel named `entry` of a Metal text. Equal texts share one compiled kernel in each process."""
    return LoadedKernel(Role(role), KernelSource.of(text, entry))
