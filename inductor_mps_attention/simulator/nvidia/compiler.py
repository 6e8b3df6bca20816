"""Metal text -> a GPU image of its kernels, by the translator of the CPU engine and NVRTC; kept on disk by digest.

Needs no GPU. An image depends on the text, the options, the shim, NVRTC's version and which buffers are numbers.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from .. import settings
from ..metal.entries import Entry, selector
from ..metal.errors import ShaderCompileError
from ..metal.preprocess import FILE_NAME, excerpt, preprocess
from ..metal.toolchain import NATIVE as METAL_NATIVE
from ..metal.toolchain import SHIM_HEADER, digest_of
from ..metal.translate import ConstantValue, Translation, translate
from . import nvrtc
from .pairing import pair_products
from .target import CUDA, inlined_macro, unroll_pragmas

NATIVE = Path(__file__).parent / "native"
DEFAULT_ARCHITECTURE = "90"
# As on the CPU engine: functions of bfloat are those of float where strict mode does not refuse them.
_BFLOAT_BECOMES_FLOAT = "template <> constexpr bool metal::msl_detail::refuses_bfloat<metal_text::bfloat> = false;\n"
# Line markers name headers by their paths, which differ between machines: an image that is carried must be found.
_PLACES = re.compile(r'^(# \d+ ")[^"\n]*/([^/"\n]+"[ \d]*)$', re.MULTILINE)
_FLAGS = ("-default-device", "--std=c++17", "--device-int128", "-lineinfo", "--fmad=true", "-w")


@dataclass(frozen=True)
class Options:
    """How texts are compiled.

    float32 "exact" multiplies float matrices in float, in order; "fast" splits each float in two tf32 on tensor cores.
    `pairing` joins half-empty products in the PTX, a sensitivity of the engine; it implies `rezero`, where each product
    gets fresh zeros for the half that the hardware has and Apple's has not. `jitter`, a number but 0, lets simdgroups
    leave barriers at times of their own; `poison` fills threadgroup memory and fresh matrices with NaN.
    """

    float32: Literal["exact", "fast"] = "exact"
    pairing: bool = False
    rezero: bool = False
    jitter: int = 0
    poison: bool = False
    architecture: str = DEFAULT_ARCHITECTURE

    def __post_init__(self) -> None:
        if self.float32 not in ("exact", "fast"):
            raise ValueError(f"float32 is {self.float32!r}; it is 'exact' or 'fast'")

    def flags(self) -> list[str]:
        """NVRTC's options. Pairing is done on PTX, else machine code is made."""
        kind = "compute" if self.pairing else "sm"
        flags = [f"--gpu-architecture={kind}_{self.architecture}", *_FLAGS]
        flags.append(f"-DMSL_EXACT_FLOAT={int(self.float32 == 'exact')}")
        flags.append(f"-DMSL_REZERO={int(self.rezero or self.pairing)}")
        if self.jitter:
            flags.append(f"-DMSL_JITTER={self.jitter}u")
        if self.poison:
            flags.append("-DMSL_POISON=1")
        return flags


@dataclass(frozen=True)
class Request:
    """A translated text and how it is compiled; `source` is the Metal text, for messages."""

    source: str
    translation: Translation
    options: Options
    strict: bool


def request(
    source: str,
    options: Options,
    *,
    function_constants: Mapping[int | str, ConstantValue] | None = None,
    include_dirs: Sequence[str] = (),
    defines: Sequence[str] = (),
    strict: bool = True,
) -> Request:
    """Preprocesses and translates. Raises ShaderCompileError with the line."""
    text = preprocess(source, settings.compiler(), METAL_NATIVE / "stubs", include_dirs, defines)
    translation = translate(text, function_constants, strict=strict, target=CUDA)
    return Request(source, translation, options, strict)


def inlined_by_type(entry: Entry) -> int:
    """The buffers that are numbers or lists unless a call says otherwise: those in constant memory."""
    numbers = [p.index for p in entry.parameters if p.kind == "A_BUF" and "constant" in p.text.split()]
    return sum(1 << index for index in numbers)


def build(wanted: Request, inlined: Mapping[str, int]) -> bytes:
    """The image of the entries whose symbols `inlined` has; it gives the buffers that are numbers. Raises
    ShaderCompileError.
    """
    macros = _BFLOAT_BECOMES_FLOAT * (not wanted.strict)
    for symbol in sorted(entry.symbol for entry in wanted.translation.entries):
        macros += f"#define {selector(symbol)}(...) {'__VA_ARGS__' * (symbol in inlined)}\n"
        macros += f"#define {inlined_macro(symbol)} {inlined.get(symbol, 0)}u\n"
    code = _PLACES.sub(r"\1\2", unroll_pragmas(wanted.translation.code))
    text = f'#include "cuda_shim.h"\n{macros}namespace metal_text {{\n{code}\n}}\n'
    key = digest_of(text, json.dumps(asdict(wanted.options)), _identity())
    kept = settings.cache_directory() / "nvidia" / f"{key}.image"
    if kept.exists():
        return kept.read_bytes()
    image = _compile(wanted, text)
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_bytes(image)
    os.replace(unfinished, kept)
    return image


def _compile(wanted: Request, text: str) -> bytes:
    try:
        compiled = nvrtc.compile_cuda(text, headers(), wanted.options.flags())
    except nvrtc.NvrtcError as error:
        raise _compile_error(str(error), wanted.source) from None
    if not wanted.options.pairing:
        return compiled.image
    return pair_products(compiled.image.rstrip(b"\0").decode()).text.encode() + b"\0"


def _compile_error(log: str, source: str) -> ShaderCompileError:
    """NVRTC's first error at its line of the Metal text, or at none where it is in the shim."""
    found = re.findall(rf"^{re.escape(FILE_NAME)}\((\d+)\): (?:catastrophic )?error: (.*)$", log, re.MULTILINE)
    if not found:
        return ShaderCompileError(log[:4000])
    line = int(found[0][0])
    others = "".join(f"\nline {number}: {text}" for number, text in found[1:8])
    return ShaderCompileError(found[0][1] + others, line, excerpt(source, line))


@functools.cache
def headers() -> dict[str, str]:
    """The shim by header name: this engine's headers replace those of the CPU engine that have the same name."""
    files = [METAL_NATIVE / SHIM_HEADER, *(METAL_NATIVE / "shim").iterdir(), *NATIVE.iterdir()]
    return {file.name: file.read_text().replace('#include "shim/', '#include "') for file in files}


@functools.cache
def _identity() -> str:
    return digest_of(repr(nvrtc.version()), *_FLAGS, *(f"{name}:{text}" for name, text in sorted(headers().items())))
