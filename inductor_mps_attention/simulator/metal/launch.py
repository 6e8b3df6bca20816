"""The seam to the runtime library: the structs of native/abi.h for ctypes, and the library itself. Nothing
else knows the layout.
"""

from __future__ import annotations

import ctypes
import functools

from ..errors import SimulatorError
from .toolchain import runtime_library

MAX_BUFFERS = 31
MAX_REGIONS = 64
MAX_REPORTS = 32

# How threads take turns between two synchronisation points.
ORDER_FORWARD, ORDER_REVERSE, ORDER_RANDOM, ORDER_FIBERLESS = 0, 1, 2, 9

SEVERITY_ERROR = 1

REPORT_KINDS = {
    1: "race",
    2: "same_value_write",
    3: "out_of_bounds",
    4: "uninitialised",
    5: "read_only_write",
    6: "divergent_barrier",  # some threads do not reach it
    7: "divergent_barrier",  # threads wait at different ones
    8: "divergent_collective",
    9: "threadgroup_memory",
    10: "deadlock",
    11: "unsupported",
    12: "stack_overflow",
    13: "inactive_lane",
    14: "assertion",
    15: "division_by_zero",
}

COUNTERS = (
    "threadgroups",
    "products",
    "collectives",
    "divergent",
    "barriers",
    "simdgroup_barriers",
    "atomics",
    "device_bytes_read",
    "device_bytes_written",
    "threadgroup_bytes_read",
    "threadgroup_bytes_written",
    "shuffles",
    "exp2_calls",
)


class LaunchReport(ctypes.Structure):
    """MslReport: one finding of a checked launch."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("severity", ctypes.c_uint32),
        ("pc", ctypes.c_uint64),
        ("other_pc", ctypes.c_uint64),
        ("line", ctypes.c_int32),
        ("other_line", ctypes.c_int32),
        ("thread", ctypes.c_int32),
        ("other_thread", ctypes.c_int32),
        ("threadgroup", ctypes.c_int64),
        ("other_threadgroup", ctypes.c_int64),
        ("address", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("buffer", ctypes.c_int32),
        ("repeats", ctypes.c_uint32),
        ("name", ctypes.c_char * 40),
        ("message", ctypes.c_char * 320),
    )


class Launch(ctypes.Structure):
    """MslLaunch: what is launched, and what came of it."""

    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("group", ctypes.c_uint32 * 3),
        ("buffers", ctypes.c_void_p * MAX_BUFFERS),
        ("workers", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("check", ctypes.c_uint32),
        ("poison", ctypes.c_uint32),
        ("inactive_fill", ctypes.c_uint32),
        ("threadgroup_limit", ctypes.c_uint32),
        ("stack_kib", ctypes.c_uint32),
        ("dynamic_threadgroup", ctypes.c_uint32 * 8),
        ("region_count", ctypes.c_uint32),
        ("region_low", ctypes.c_uint64 * MAX_REGIONS),
        ("region_high", ctypes.c_uint64 * MAX_REGIONS),
        ("region_element", ctypes.c_uint32 * MAX_REGIONS),
        ("region_writable", ctypes.c_uint32 * MAX_REGIONS),
        ("region_index", ctypes.c_int32 * MAX_REGIONS),
        ("guard", ctypes.c_uint32),
        ("module_low", ctypes.c_uint64),
        ("module_high", ctypes.c_uint64),
        ("report_count", ctypes.c_uint32),
        ("reports_stored", ctypes.c_uint32),
        ("error_count", ctypes.c_uint32),
        ("threadgroup_bytes", ctypes.c_uint32),
        ("counters", ctypes.c_uint64 * 16),
        ("reports", LaunchReport * MAX_REPORTS),
    )


@functools.cache
def runtime() -> ctypes.CDLL:
    """The runtime library, loaded so that compiled shaders find its functions."""
    library = ctypes.CDLL(str(runtime_library()), mode=ctypes.RTLD_GLOBAL)
    library.msl_launch_size.restype = library.msl_report_size.restype = ctypes.c_size_t
    sizes = library.msl_launch_size(), library.msl_report_size()
    expected = ctypes.sizeof(Launch), ctypes.sizeof(LaunchReport)
    if sizes != expected:
        raise SimulatorError(
            f"the Metal runtime's structs have {sizes} bytes, and {expected} in Python: layouts differ"
        )
    library.msl_dispatch.argtypes = [ctypes.c_void_p]
    return library


def module_range(entry: int) -> tuple[int, int]:
    """The addresses that the module of a kernel's entry occupies."""
    low, high = ctypes.c_uint64(), ctypes.c_uint64()
    if runtime().msl_module_range(ctypes.c_void_p(entry), ctypes.byref(low), ctypes.byref(high)):
        raise SimulatorError("a compiled shader's own addresses are not known")
    return low.value, high.value
