"""The CUDA driver through ctypes: devices, modules, functions, launches. Needs a driver; no toolkit, no torch."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from enum import IntEnum

from ..errors import SimulatorError


class FunctionAttribute(IntEnum):
    """CUfunction_attribute, those in use."""

    MAX_THREADS = 0
    SHARED_BYTES = 1
    LOCAL_BYTES = 3
    REGISTERS = 4
    MAX_DYNAMIC_SHARED_BYTES = 8


class _DeviceAttribute(IntEnum):
    CLOCK_KHZ = 13
    MULTIPROCESSORS = 16
    CAPABILITY_MAJOR = 75
    CAPABILITY_MINOR = 76


@dataclass(frozen=True)
class DeviceFacts:
    """What a record of a measurement says of the GPU."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock_mhz: int
    driver: str


@functools.cache
def library() -> ctypes.CDLL:
    """The driver, initialised. SimulatorError where there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise SimulatorError(f"no NVIDIA driver on this machine: {error}") from error
    status = cuda.cuInit(0)
    if status:
        raise SimulatorError(f"the NVIDIA driver does not start: cuInit returns {status}")
    return cuda


def is_available() -> bool:
    """Whether there is a driver with at least one GPU."""
    try:
        count = ctypes.c_int()
        check(library().cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    except SimulatorError:
        return False
    return count.value > 0


def check(status: int, what: str) -> None:
    """Raises SimulatorError with the driver's words for a status that is not success."""
    if status:
        words = ctypes.c_char_p()
        library().cuGetErrorString(status, ctypes.byref(words))
        raise SimulatorError(f"{what}: {words.value.decode() if words.value else f'CUDA error {status}'}")


@functools.cache
def _context(device: int) -> ctypes.c_void_p:
    """The device's primary context, which torch uses too."""
    context = ctypes.c_void_p()
    check(library().cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    return context


def use_device(device: int = 0) -> None:
    """Makes the device's primary context current on this thread."""
    check(library().cuCtxSetCurrent(_context(device)), "cuCtxSetCurrent")


def current_device() -> int:
    """The device of the current context; device 0 is made current where there is none."""
    context, device = ctypes.c_void_p(), ctypes.c_int()
    check(library().cuCtxGetCurrent(ctypes.byref(context)), "cuCtxGetCurrent")
    if not context.value:
        use_device(0)
    check(library().cuCtxGetDevice(ctypes.byref(device)), "cuCtxGetDevice")
    return device.value


@functools.cache
def facts(device: int = 0) -> DeviceFacts:
    """Name, size and driver of a device."""
    cuda, name, version = library(), ctypes.create_string_buffer(128), ctypes.c_int()
    check(cuda.cuDeviceGetName(name, 128, device), "cuDeviceGetName")
    check(cuda.cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
    capability = (
        _attribute(device, _DeviceAttribute.CAPABILITY_MAJOR),
        _attribute(device, _DeviceAttribute.CAPABILITY_MINOR),
    )
    return DeviceFacts(
        name=name.value.decode(),
        capability=capability,
        multiprocessors=_attribute(device, _DeviceAttribute.MULTIPROCESSORS),
        clock_mhz=_attribute(device, _DeviceAttribute.CLOCK_KHZ) // 1000,
        driver=f"CUDA {version.value // 1000}.{version.value % 1000 // 10}",
    )


def _attribute(device: int, attribute: _DeviceAttribute) -> int:
    value = ctypes.c_int()
    check(library().cuDeviceGetAttribute(ctypes.byref(value), int(attribute), device), "cuDeviceGetAttribute")
    return value.value


class LoadedModule:
    """An image on the GPU. It stays loaded as long as this object lives."""

    def __init__(self, image: bytes):
        current_device()
        self._handle = ctypes.c_void_p()
        check(library().cuModuleLoadData(ctypes.byref(self._handle), image), "loading a compiled kernel")

    def function(self, symbol: str) -> Function:
        handle = ctypes.c_void_p()
        status = library().cuModuleGetFunction(ctypes.byref(handle), self._handle, symbol.encode())
        check(status, f"looking up {symbol}")
        return Function(handle, self)


class Function:
    """An entry point on the GPU, which takes one struct by value."""

    def __init__(self, handle: ctypes.c_void_p, module: LoadedModule):
        self._handle = handle
        self._module = module
        self._launch = library().cuLaunchKernel

    def attribute(self, attribute: FunctionAttribute) -> int:
        value = ctypes.c_int()
        status = library().cuFuncGetAttribute(ctypes.byref(value), int(attribute), self._handle)
        check(status, f"reading {attribute.name}")
        return value.value

    def argument_bytes(self) -> int:
        """Size of the struct, as compiled."""
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        status = library().cuFuncGetParamInfo(
            self._handle, ctypes.c_size_t(0), ctypes.byref(offset), ctypes.byref(size)
        )
        check(status, "cuFuncGetParamInfo")
        return size.value

    def allow_dynamic_bytes(self, size: int) -> None:
        """Lets launches ask for `size` bytes of dynamic shared memory."""
        attribute = int(FunctionAttribute.MAX_DYNAMIC_SHARED_BYTES)
        check(library().cuFuncSetAttribute(self._handle, attribute, size), "asking for dynamic shared memory")

    def launch(
        self, groups: int, threads: int, dynamic_bytes: int, stream: int, arguments: ctypes.Array[ctypes.c_char]
    ) -> None:
        """Starts `groups` blocks of `threads` on a stream; returns at once."""
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        status = self._launch(
            self._handle, groups, 1, 1, threads, 1, 1, dynamic_bytes, ctypes.c_void_p(stream), pointers, None
        )
        check(status, "launching a kernel")


def synchronize() -> None:
    """Waits for all work of the current context; raises what went wrong in it."""
    current_device()
    check(library().cuCtxSynchronize(), "waiting for the GPU")
