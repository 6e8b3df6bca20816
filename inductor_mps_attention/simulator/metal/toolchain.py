"""The C++ compiler as the Metal engine uses it: flags, the precompiled shim header, the runtime library.

All that is built is named by a digest of everything that decides its content. Knows nothing of Metal text.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from pathlib import Path

from .. import build, settings
from ..errors import SimulatorError
from .preprocess import run_compiler

NATIVE = Path(__file__).parent / "native"
SHIM_HEADER = "msl_shim.h"

_COMMON_FLAGS = [
    "-std=c++17",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-fwrapv",
    "-fsigned-char",
    "-fstack-clash-protection",  # a frame that is too large meets the guard page, and no other thread's stack
]
# Contraction is pinned: whether a * b + c is one rounding or two must not depend on the processor or the
# optimiser.
_COMMON_FLAGS += ["-ffp-contract=off", "-fno-semantic-interposition", "-w", "-Wno-narrowing", "-march=native"]
_FAST_FLAGS = [*_COMMON_FLAGS, "-O2", "-g1", "-gdwarf-4"]
# Accesses are instrumented, indices of arrays checked, and private variables filled with a pattern; the runtime library
# itself receives the calls: no sanitizer's library is ever linked. DWARF 4, as addr2line of binutils 2.40 names the
# wrong file for inlined frames of DWARF 5.
_CHECK_FLAGS = [*_COMMON_FLAGS, "-O1", "-g", "-gdwarf-4", "-fno-tree-vectorize"]
_CHECK_FLAGS += ["-fsanitize=thread,object-size", "-fstack-protector-strong", "-ftrivial-auto-var-init=pattern"]
_RUNTIME_FLAGS = [
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-shared",
    "-pthread",
    "-march=native",
    "-fwrapv",
    "-ffp-contract=fast",
]


def is_clang(compiler: str) -> bool:
    """Whether a compiler is some clang, whatever it is called."""
    return "clang" in build.compiler_version(compiler)


def module_flags(compiler: str, checked: bool) -> list[str]:
    """The flags of a compiled shader, and of the shim header that is precompiled for it."""
    flags = [*(_CHECK_FLAGS if checked else _FAST_FLAGS), *_unaligned_moves()]
    if checked:  # arrays at the end of a struct are no shorter or longer in Metal: g++ would leave them out
        flags.append("-fsanitize=bounds" if is_clang(compiler) else "-fsanitize=bounds-strict")
    # Symbols of one module must not stand for those of another; only g++ makes them do so.
    # The assembler must be GNU's, see above.
    return [*flags, "-Wno-c++11-narrowing", "-fno-integrated-as"] if is_clang(compiler) else [*flags, "-fno-gnu-unique"]


def _unaligned_moves() -> list[str]:
    """Public kernels access rows of any length as vectors, which a GPU takes at the alignment of their elements. On
    x86-64 the moves that the compiler makes of them trap; the GNU assembler writes others instead.
    """
    if platform.machine() != "x86_64":
        return []
    return ["-Wa,-muse-unaligned-vector-move"]


def digest_of(*parts: str) -> str:
    """A short name for texts: different for different lists of texts."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()[:24]


def modules_directory() -> Path:
    """Where compiled shaders are kept."""
    return settings.cache_directory() / "metal"


@functools.cache
def identity(compiler: str, checked: bool) -> str:
    """All that decides a module besides its text: compiler, flags, processor, shim, and this translator."""
    native = [path for path in NATIVE.rglob("*") if path.is_file() and path.parent.name not in ("runtime", "strict")]
    translator = [
        Path(__file__).parent / f"{name}.py"
        for name in ("compiler", "entries", "preprocess", "source", "target", "tokens", "toolchain")
    ]
    translator += [
        path for pattern in ("translate*.py", "strict/language.py") for path in Path(__file__).parent.glob(pattern)
    ]
    contents = [f"{path.name}:{path.read_text()}" for path in sorted([*native, *translator])]
    flags = module_flags(compiler, checked)
    return digest_of(build.compiler_version(compiler), compiler, *flags, _processor(), *contents)


@functools.cache
def _processor() -> str:
    """What -march=native means here."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {features}"


def precompiled_shim(compiler: str, checked: bool) -> Path:
    """The shim header, precompiled with the flags of the modules: it is most of a small kernel's compile
    time.
    """
    folder = modules_directory() / f"shim-{identity(compiler, checked)}"
    header = folder / f"{SHIM_HEADER}.gch"
    if is_clang(compiler) or header.exists():
        return header
    with build.locked(folder / "lock"):
        if not header.exists():
            flags = module_flags(compiler, checked)
            unfinished = folder / f"{os.getpid()}.tmp"
            command = [
                compiler,
                *flags,
                f"-I{NATIVE}",
                "-x",
                "c++-header",
                str(NATIVE / SHIM_HEADER),
                "-o",
                str(unfinished),
            ]
            done = run_compiler(command)
            if done.returncode:
                raise SimulatorError(f"the shim header does not compile\n{' '.join(command)}\n{done.stderr}")
            os.replace(unfinished, header)
    return header


@functools.cache
def runtime_library() -> Path:
    """The library that runs a grid of threads, built from native/runtime."""
    compiler = settings.compiler()
    sources = sorted((NATIVE / "runtime").glob("*.cpp"))
    headers = sorted([*(NATIVE / "runtime").glob("*.h"), *NATIVE.glob("*.h")])
    contents = [f"{file.name}:{file.read_text()}" for file in [*sources, *headers]]
    key = digest_of(build.compiler_version(compiler), *_RUNTIME_FLAGS, _processor(), *contents)
    library = settings.cache_directory() / f"libmetal-runtime-{key}.so"
    if library.exists():
        return library
    with build.locked(library.with_suffix(".lock")):
        if not library.exists():
            unfinished = library.with_suffix(f".{os.getpid()}.tmp")
            command = [
                compiler,
                *_RUNTIME_FLAGS,
                f"-I{NATIVE}",
                *map(str, sources),
                "-o",
                str(unfinished),
                "-ldl",
            ]
            done = run_compiler(command)
            if done.returncode:
                raise SimulatorError(f"building the Metal runtime failed\n{' '.join(command)}\n{done.stderr}")
            os.replace(unfinished, library)
    return library
