"""Metal text -> the same text with includes and macros resolved, by a C++ compiler's preprocessor."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .errors import ShaderCompileError

FILE_NAME = "kernel.metal"
DEFAULT_METAL_VERSION = "320"


def torch_include_directories() -> list[str]:
    """Where torch keeps <c10/metal/...>; empty without torch. Does not import torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return []
    return [str(Path(location) / "include") for location in spec.submodule_search_locations]


def preprocess(
    source: str, compiler: str, stubs: Path, include_dirs: Sequence[str] = (), defines: Sequence[str] = ()
) -> str:
    """The preprocessed text, with line markers. `stubs` holds empty <metal_...> headers and their macros."""
    command = [compiler, "-E", "-x", "c++", "-std=c++17", "-w", "-nostdinc", "-D__METAL__=1"]
    # Apple's compiler knows its library without an include, too: generated texts count on it.
    command += ["-include", str(stubs / "msl_macros.h")]
    if not any(define.startswith("__METAL_VERSION__") for define in defines):
        command.append(f"-D__METAL_VERSION__={DEFAULT_METAL_VERSION}")
    command += [f"-D{define}" for define in defines]
    command += [f"-I{directory}" for directory in (stubs, *include_dirs, *torch_include_directories())]
    marked = f'#line 1 "{FILE_NAME}"\n{source}'
    done = run_compiler([*command, "-"], marked)
    if done.returncode:
        raise compile_error(done.stderr, source)
    return done.stdout


def run_compiler(command: Sequence[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command with English messages; its exit status is the caller's to look at."""
    english = os.environ | {"LC_ALL": "C"}
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=english)


def compile_error(output: str, source: str) -> ShaderCompileError:
    """The compiler's first error as an exception: its line of the user's text, the text around it, and the
    other errors.
    """
    errors = re.findall(r"^([^\s:]+):(\d+)(?::\d+)?:\s*(?:fatal )?error:\s*(.*)$", output, re.MULTILINE)
    own = [(line, message) for file, line, message in errors if file == FILE_NAME]
    if own:
        line, message = int(own[0][0]), own[0][1]
    elif errors:  # in a header, or in the shim: the line of the text is that which leads there
        file, number, message = errors[0]
        through = rf"{re.escape(FILE_NAME)}:(\d+)(?::\d+)?(?::\s*required from|[,:]$)"
        leading = re.findall(through, output, re.MULTILINE)
        line, message = int(leading[0]) if leading else 0, f"{file}:{number}: {message}"
    else:
        line, message = 0, output.strip()[-2000:]
    if "use of deleted function" in message or "call to deleted function" in message:
        message += "; Metal has no such function of bfloat: convert to float, or compile with strict=False [strict T2]"
    others = "".join(f"\nline {number}: {text}" for number, text in own[1:8])
    return ShaderCompileError(message + others, line, excerpt(source, line))


def excerpt(source: str, line: int, around: int = 2) -> str:
    """The lines around `line`, numbered, with an arrow at it."""
    if line < 1:
        return ""
    lines = source.split("\n")
    shown = range(max(1, line - around), min(len(lines), line + around) + 1)
    return "\n".join(f"{'->' if number == line else '  '} {number:4d} | {lines[number - 1]}" for number in shown)
