"""CUDA text -> machine code or PTX, by NVRTC through ctypes. Needs NVRTC's library, no GPU and no CUDA headers."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import SimulatorError

# The wheels of CUDA 13 and 12, and where each keeps its libraries.
_WHEELS = {"nvidia-cuda-nvrtc": "nvidia/cu13/lib", "nvidia-cuda-nvrtc-cu12": "nvidia/cuda_nvrtc/lib"}
_SYSTEM_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


@dataclass(frozen=True)
class Compiled:
    """What NVRTC made. `image` is a cubin or, for a virtual architecture, PTX; `log` is its warnings."""

    image: bytes
    log: str


class NvrtcError(SimulatorError):
    """NVRTC refuses a text; the message is its log."""


@functools.cache
def library() -> ctypes.CDLL:
    """NVRTC, from a wheel in this environment or from the system. SimulatorError with the remedy if there is none."""
    for folder in _wheel_folders():
        found = sorted(folder.glob("libnvrtc.so.*"))
        if found:
            for builtins in sorted(folder.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)  # NVRTC looks for it by name alone
            return ctypes.CDLL(str(found[0]))
    found_by_name = next(filter(None, map(_load, _SYSTEM_NAMES)), None)
    if found_by_name is None:
        raise SimulatorError("NVRTC is not installed: pip install nvidia-cuda-nvrtc (or nvidia-cuda-nvrtc-cu12)")
    return found_by_name


def _load(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def is_available() -> bool:
    """Whether texts can be compiled here."""
    try:
        library()
    except (SimulatorError, OSError):
        return False
    return True


@functools.cache
def version() -> tuple[int, int]:
    """NVRTC's major and minor version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


def compile_cuda(text: str, headers: Mapping[str, str], options: Sequence[str]) -> Compiled:
    """Compiles `text`, which includes `headers` by name. Raises NvrtcError with NVRTC's words."""
    nvrtc, program = library(), ctypes.c_void_p()
    names = (ctypes.c_char_p * len(headers))(*[name.encode() for name in headers])
    contents = (ctypes.c_char_p * len(headers))(*[content.encode() for content in headers.values()])
    created = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), b"translated.cu", len(headers), contents, names
    )
    _check(created, "nvrtcCreateProgram")
    try:
        flags = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        failed = nvrtc.nvrtcCompileProgram(program, len(options), flags)
        log = _text(nvrtc, program, "ProgramLog").decode(errors="replace").strip("\0\n ")
        if failed:
            raise NvrtcError(log or f"nvrtcCompileProgram failed with status {failed}")
        virtual = any(option.startswith("--gpu-architecture=compute_") for option in options)
        return Compiled(_text(nvrtc, program, "PTX" if virtual else "CUBIN"), log)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"nvrtcGet{what}Size")
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer), f"nvrtcGet{what}")
    return buffer.raw


def _check(status: int, what: str) -> None:
    if status:
        raise SimulatorError(f"{what} failed with status {status}")


def _wheel_folders() -> Iterator[Path]:
    for wheel, folder in _WHEELS.items():
        for distribution in importlib.metadata.distributions(name=wheel):
            yield Path(str(distribution.locate_file(folder)))
