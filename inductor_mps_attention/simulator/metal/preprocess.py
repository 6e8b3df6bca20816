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
    errors = re.findall(
        rf"^(?:{re.escape(FILE_NAME)}|[^\s:]+):(\d+)(?::\d+)?:\s*(?:fatal )?error:\s*(.*)$",
        output,
        re.MULTILINE,
    )
    own = re.findall(rf"^{re.escape(FILE_NAME)}:(\d+)(?::\d+)?:\s*(?:fatal )?error:\s*(.*)$", output, re.MULTILINE)
    if not own:
        own = re.findall(rf"^{re.escape(FILE_NAME)}:(\d+)(?::\d+)?:\s*(required from .*)$", output, re.MULTILINE)
        message = errors[0][1] if errors else output.strip()[-2000:]
        line = int(own[0][0]) if own else 0
    else:
        line, message = int(own[0][0]), own[0][1]
    others = "".join(f"\nline {number}: {text}" for number, text in own[1:8])
    return ShaderCompileError(message + others, line, excerpt(source, line))


def excerpt(source: str, line: int, around: int = 2) -> str:
    """The lines around `line`, numbered, with an arrow at it."""
    if line < 1:
        return ""
    lines = source.split("\n")
    shown = range(max(1, line - around), min(len(lines), line + around) + 1)
    return "\n".join(f"{'->' if number == line else '  '} {number:4d} | {lines[number - 1]}" for number in shown)
