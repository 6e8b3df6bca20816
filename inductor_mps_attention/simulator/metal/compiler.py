"""Metal text -> a shared library of its kernels, built once and kept on disk.

A module's name is a digest of the preprocessed text, the function constants, the shim, the flags, the
compiler's version and the processor: copying the tree or touching a file builds nothing anew. Processes that
want the same module at once build it once.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .. import build, settings
from ..errors import SimulatorError
from .entries import Entry, Parameter, selector
from .preprocess import compile_error, preprocess, run_compiler
from .target import PRELUDE
from .toolchain import NATIVE, SHIM_HEADER, digest_of, identity, module_flags, modules_directory, precompiled_shim
from .translate import ConstantValue, translate

# Functions of bfloat are those of float, as some shipping kernels have it; strict mode refuses them.
_BFLOAT_BECOMES_FLOAT = "template <> constexpr bool metal::msl_detail::refuses_bfloat<bfloat> = false;\n"


# A text with more kernels than this is compiled kernel by kernel, each when it is first asked for: public texts
# instantiate hundreds, which takes minutes, and few are used.
KERNELS_AT_ONCE = 64


@dataclass(frozen=True)
class Module:
    """A built module: its shared library, its kernels, the names of those that need no fibers, and whether it
    has atomics. `in_parts` says that there is a library for each kernel, which `kernel_module` builds.
    """

    library: Path
    entries: tuple[Entry, ...]
    independent: frozenset[str]
    has_atomics: bool
    checked: bool
    in_parts: bool


@dataclass(frozen=True)
class Request:
    """What is to be built: a Metal text, and all that decides what becomes of it."""

    source: str
    function_constants: Mapping[int | str, ConstantValue]
    include_dirs: tuple[str, ...]
    defines: tuple[str, ...]
    checked: bool
    strict: bool

    def options(self) -> str:
        """Everything but the text and its includes, as text."""
        constants = sorted((str(key), repr(value)) for key, value in self.function_constants.items())
        return json.dumps([constants, self.defines, self.checked, self.strict])

    def preprocessed(self, compiler: str) -> str:
        return preprocess(self.source, compiler, NATIVE / "stubs", self.include_dirs, self.defines)


def build_module(request: Request) -> Module:
    """The module of a Metal text, from the cache where it is there. Raises ShaderCompileError."""
    compiler = settings.compiler()
    # Includes may change on disk, so the text after preprocessing is looked up; one without includes is its own key.
    text = request.preprocessed(compiler) if _has_includes(request.source) else None
    key = digest_of(request.source, text or "", request.options(), identity(compiler, request.checked))
    library = modules_directory() / f"{key}.so"
    description = library.with_suffix(".json")
    if not description.exists():
        with build.locked(modules_directory() / f"{key[:2]}.lock"):
            if not description.exists():
                _build(request, text or request.preprocessed(compiler), compiler, library)
    return _read_description(description)


def _has_includes(source: str) -> bool:
    """Whether the text includes anything but Metal's own headers."""
    return any(
        not name.startswith("metal_") for name in re.findall(r'^\s*#\s*include\s*[<"]([^>"]*)', source, re.MULTILINE)
    )


def _build(request: Request, text: str, compiler: str, library: Path) -> None:
    translation = translate(text, request.function_constants, strict=request.strict)
    kindness = "" if request.strict else _BFLOAT_BECOMES_FLOAT
    library.with_suffix(".inc").write_text(f"{kindness}{PRELUDE}{translation.code}")
    symbols = [entry.symbol for entry in translation.entries]
    in_parts = len(symbols) > KERNELS_AT_ONCE
    _compile(request, compiler, library, symbols, frozenset() if in_parts else frozenset(symbols))
    description = {
        "entries": [asdict(entry) | {"arguments": []} for entry in translation.entries],
        "independent": sorted(translation.independent),
        "has_atomics": "atomic_" in text,
        "checked": request.checked,
        "in_parts": in_parts,
    }
    unfinished = library.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_text(json.dumps(description))
    os.replace(unfinished, library.with_suffix(".json"))  # last: its presence says that the library is whole


def kernel_module(module: Module, request: Request, entry: Entry) -> Module:
    """The module that has a kernel: `module`, or a part of it, which is built at the first call."""
    if not module.in_parts:
        return module
    part = module.library.with_name(f"{module.library.stem}-{entry.symbol}.so")
    if not part.exists():
        with build.locked(part.with_suffix(".lock")):
            if not part.exists():
                symbols = [other.symbol for other in module.entries]
                _compile(request, settings.compiler(), part, symbols, frozenset([entry.symbol]), module.library)
    return replace(module, library=part)


def _compile(
    request: Request,
    compiler: str,
    library: Path,
    symbols: Sequence[str],
    chosen: frozenset[str],
    text: Path | None = None,
) -> None:
    """Builds `library` with the entries `chosen` of the translated text beside `text`; with none of them, only looks
    for errors outside templates.
    """
    code = library.with_suffix(".cpp")
    selection = (f"#define {selector(symbol)}(...) {'__VA_ARGS__' * (symbol in chosen)}\n" for symbol in symbols)
    translated = (text or library).with_suffix(".inc").name
    code.write_text(f'#include "{SHIM_HEADER}"\n{"".join(selection)}#include "{translated}"\n')
    flags = module_flags(compiler, request.checked)
    header = precompiled_shim(compiler, request.checked)
    compiled = library.with_suffix(f".{os.getpid()}.o")
    command = [compiler, *flags, f"-I{header.parent}", f"-I{NATIVE}", "-c", str(code), "-o", str(compiled)]
    if not chosen:
        command.append("-fsyntax-only")
    done = run_compiler(command)
    if done.returncode:
        raise compile_error(done.stderr, request.source)
    if not chosen:
        return
    unfinished = library.with_suffix(f".{os.getpid()}.so")
    command = [compiler, "-shared", str(compiled), "-o", str(unfinished)]
    done = run_compiler(command)
    compiled.unlink()
    if done.returncode:
        raise SimulatorError(f"linking a compiled shader failed\n{' '.join(command)}\n{done.stderr}")
    os.replace(unfinished, library)


def _read_description(path: Path) -> Module:
    description = json.loads(path.read_text())
    entries = tuple(
        Entry(
            entry["name"],
            entry["symbol"],
            entry["function"],
            tuple(Parameter(**parameter) for parameter in entry["parameters"]),
            entry["max_threads"],
        )
        for entry in description["entries"]
    )
    independent = frozenset(description["independent"])
    library = path.with_suffix(".so")
    return Module(
        library, entries, independent, description["has_atomics"], description["checked"], description["in_parts"]
    )
