"""The C++ core as Python sees it, built and loaded at first use. Loading it registers the device."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from pathlib import Path

import torch

from inductor_mps_attention.simulator import build

_SOURCES = Path(__file__).parent / "native"


class Core:
    """The functions of the loaded library."""

    def __init__(self, library: Path):
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_LOCAL)
        self._library.mps_simulator_peak_memory.restype = ctypes.c_int64
        self._library.mps_simulator_allocator.restype = ctypes.c_void_p
        self._library.mps_simulator_resize_storage.argtypes = [ctypes.c_void_p, ctypes.c_int64]

    def peak_memory(self) -> int:
        """Bytes: the highest sum of live storages since the start or the last reset."""
        return int(self._library.mps_simulator_peak_memory())

    def reset_peak_memory(self) -> None:
        """The high-water mark becomes what is live now."""
        self._library.mps_simulator_reset_peak_memory()

    def set_poison(self, on: bool) -> None:
        """Whether fresh memory is filled with 0xFF bytes."""
        self._library.mps_simulator_set_poison(int(on))

    def allocator(self) -> int:
        """Address of the device's c10::Allocator."""
        return int(self._library.mps_simulator_allocator())

    def restrict_operators(self, names: Iterable[str]) -> None:
        """Operators that would run the CPU kernel are refused, but for `names` such as "aten::add.Tensor"."""
        for name in names:
            self._library.mps_simulator_add_supported_operator(name.encode())

    def run_whole(self, names: Iterable[str]) -> None:
        """Operators that run their CPU kernel, though a composite of PyTorch's would come before it."""
        for name in names:
            self._library.mps_simulator_run_whole(name.encode())

    def resize_storage(self, storage: torch.UntypedStorage, size: int) -> None:
        """Gives a storage of the device `size` bytes; the common part keeps its content."""
        self._library.mps_simulator_resize_storage(storage._cdata, size)


@functools.cache
def load() -> Core:
    """Builds the core if need be (about 15 s) and loads it. SimulatorError if it cannot be built."""
    root = Path(torch.__file__).parent
    library = build.shared_library(
        "mps_device",
        _SOURCES / "core.cpp",
        depends_on=sorted(_SOURCES.glob("*.h")),
        flags=[
            "-std=c++20",
            "-O1",
            "-w",  # PyTorch's headers warn
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            f"-I{root}/include",
            f"-I{root}/include/torch/csrc/api/include",
        ],
        link_flags=["-Wl,--no-undefined", f"-L{root}/lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{root}/lib"],
        identity=[torch.__version__, str(torch.version.git_version)],
    )
    return Core(library)
