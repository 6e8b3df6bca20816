"""The NVIDIA engine's target of the translator: CUDA C++ spellings of kernels, entries and threadgroup variables."""

from __future__ import annotations

import re

from ..metal.entries import Entry, selector
from ..metal.target import ThreadgroupVariable

_UNDECLARED_THREADS = 1024
_UNROLL = (
    (
        re.compile(r"#[ \t]*pragma[ \t]+clang[ \t]+loop[ \t]+unroll[ \t]*\([ \t]*(?:full|enable)[ \t]*\)"),
        "#pragma unroll",
    ),
    (re.compile(r"#[ \t]*pragma[ \t]+clang[ \t]+loop[ \t]+unroll[ \t]*\([ \t]*disable[ \t]*\)"), "#pragma unroll 1"),
    (
        re.compile(r"#[ \t]*pragma[ \t]+clang[ \t]+loop[ \t]+unroll_count[ \t]*\([ \t]*(\w+)[ \t]*\)"),
        r"#pragma unroll \1",
    ),
)


def buffer_count(entry: Entry) -> int:
    """Places for buffers in the argument of the entry; at least one, as C++ has no empty arrays."""
    return 1 + max((parameter.index for parameter in entry.parameters if parameter.kind == "A_BUF"), default=0)


def inlined_macro(symbol: str) -> str:
    """The macro that says which buffers of an entry are numbers, a bit for each index."""
    return f"MSL_INLINED_{symbol}"


class CudaTarget:
    """CUDA C++17 for NVRTC, where what has no execution space is for the device."""

    keeps_pragmas = True
    kernel_specifier = "static __forceinline__"
    scope = "::metal_text::"

    def entry(self, entry: Entry, reference: str) -> str:
        kinds = ", ".join(f"::metal_text::msl_::ki<::metal_text::msl_::{p.kind}, {p.index}>" for p in entry.parameters)
        arguments = f"::metal_text::msl_::Arguments<{buffer_count(entry)}, {inlined_macro(entry.symbol)}>"
        bounds = f"__launch_bounds__({entry.max_threads}) " if entry.max_threads < _UNDECLARED_THREADS else ""
        call = f"::metal_text::msl_::call<{reference}>({reference}, ::metal_text::msl_::kis<{kinds}>{{}}, arguments);"
        signature = f"void {bounds}{entry.symbol}(const __grid_constant__ {arguments} arguments)"
        return f' {selector(entry.symbol)}(extern "C" __global__ {signature} {{ {call} }})'

    def threadgroup_variable(self, variable: ThreadgroupVariable) -> str:
        """The first thread stores the initialiser's value, and all wait for it."""
        name, kind = variable.name, f"msl_threadgroup_{variable.number}"
        code = f" using {kind} = {variable.base} {variable.dimensions}; __shared__ alignas(16) {kind} {name};"
        if not variable.initialiser:
            return code
        bytes_of = f"((volatile char*)&{name})[b] = ((const char*)&{kind}_value)[b]"
        copy = f"for (unsigned b = 0; b < sizeof({kind}); ++b) {bytes_of};"
        once = f"if (threadIdx.x == 0) {{ const {kind} {kind}_value {variable.initialiser}; {copy} }}"
        return f"{code} {once} __syncthreads();"


CUDA = CudaTarget()


def unroll_pragmas(code: str) -> str:
    """Clang's loop pragmas in NVRTC's words."""
    for pattern, replacement in _UNROLL:
        code = pattern.sub(replacement, code)
    return code
