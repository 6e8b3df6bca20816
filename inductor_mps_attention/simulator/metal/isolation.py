"""Copies of the memory that a checked launch may touch, each between guards, so that every byte outside it is
out of bounds.

Tensors of one storage share one copy: what a kernel writes through one of them it reads through the other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .errors import ShaderLaunchError
from .launch import MAX_REGIONS, Launch

# An access that strays no further is reported and goes on; further ones end their threadgroup.
_GUARD = 65536


@dataclass
class Region:
    """One piece of memory: where it is, where its copy is, and what may be done with it. `element` is its
    smallest unit in bytes.
    """

    address: int
    size: int
    element: int
    writable: bool
    index: int
    copy: int = 0
    memory: ctypes.Array[ctypes.c_char] | None = None

    def isolate(self) -> None:
        """Copies the bytes; the copy is aligned as they are."""
        self.memory = (ctypes.c_char * (self.size + 2 * _GUARD + 256))()
        start = ctypes.addressof(self.memory) + _GUARD
        self.copy = start + (self.address - start) % 256
        ctypes.memmove(self.copy, self.address, self.size)

    def copy_back(self) -> None:
        if self.writable:
            ctypes.memmove(self.address, self.copy, self.size)


class IsolatedBuffers:
    """The regions of one launch, by the memory they stand for."""

    def __init__(self) -> None:
        self._regions: dict[int, Region] = {}
        self._bound: list[tuple[int, int, int]] = []  # buffer index, key of the region, address
        self._stored: list[tuple[int, int, int]] = []  # where an address is stored, key of what it leads to, address

    def add_tensor(self, index: int, tensor: torch.Tensor, writable: bool) -> None:
        """Everything from the tensor's first element to the end of its storage may be touched."""
        if tensor.numel() == 0:  # its data_ptr() is 0, wherever it lies: nothing in it may be touched
            key, address, size = -1 - index, 0, 0
        else:
            key, address, size = _extent(tensor)
        self._add(index, key, address, size, tensor.element_size(), writable)
        self._bound.append((index, key, address))

    def add_tensors(self, index: int, tensors: Sequence[torch.Tensor], table: int) -> None:
        """The addresses of tensors as a buffer, stored at `table`; the kernel may do anything with their memory."""
        self.add_bytes(index, table, 8 * len(tensors), 8)
        for number, tensor in enumerate(tensors):
            if tensor.numel():
                key, address, size = _extent(tensor)
                self._add(index, key, address, size, tensor.element_size(), True)
                self._stored.append((table + 8 * number, key, address))

    def add_bytes(self, index: int, address: int, size: int, element: int, writable: bool = False) -> None:
        self._add(index, address, address, size, element, writable)
        self._bound.append((index, address, address))

    def _add(self, index: int, key: int, address: int, size: int, element: int, writable: bool) -> None:
        region = self._regions.get(key)
        if region is None:
            region = self._regions[key] = Region(address, max(size, 0), element, writable, index)
        else:
            end = max(region.address + region.size, address + size)
            region.address = min(region.address, address)
            region.size = end - region.address
            region.element = min(region.element, element)
            region.writable |= writable

    def bind(self, launch: Launch) -> None:
        """Makes the copies and hands them to the launch in place of the memory itself."""
        regions = list(self._regions.values())
        if len(regions) > MAX_REGIONS:
            raise ShaderLaunchError(f"a checked launch with {len(regions)} pieces of memory; at most {MAX_REGIONS}")
        launch.region_count = len(regions)
        launch.guard = _GUARD
        for number, region in enumerate(regions):
            region.isolate()
            launch.region_low[number] = region.copy
            launch.region_high[number] = region.copy + region.size
            launch.region_element[number] = region.element
            launch.region_writable[number] = region.writable
            launch.region_index[number] = region.index
        for index, key, address in self._bound:
            region = self._regions[key]
            launch.buffers[index] = region.copy + (address - region.address)
        for place, key, address in self._stored:
            region, table = self._regions[key], next(r for r in regions if r.address <= place < r.address + r.size)
            value = ctypes.c_uint64(region.copy + (address - region.address))
            ctypes.memmove(table.copy + (place - table.address), ctypes.byref(value), 8)

    def copy_back(self) -> None:
        for region in self._regions.values():
            region.copy_back()


def _extent(tensor: torch.Tensor) -> tuple[int, int, int]:
    """The storage of a tensor with elements, the address of the first, and the bytes from there to the end."""
    storage = tensor.untyped_storage()
    address = tensor.data_ptr()
    return storage.data_ptr(), address, storage.data_ptr() + storage.nbytes() - address
