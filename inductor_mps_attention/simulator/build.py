"""C++ sources -> a shared library, built at first use and cached.

A library's name carries a digest of all that decides its content: the text of the sources, the flags, the
compiler's version and whatever else the caller names. So two versions of PyTorch or of a source never share a
library, and copying the tree does not make a new one. Processes that want the same library at once build it
once. Knows nothing of what is built.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from inductor_mps_attention.simulator import settings
from inductor_mps_attention.simulator.errors import SimulatorError


def shared_library(
    name: str,
    source: Path,
    *,
    depends_on: Iterable[Path] = (),
    flags: Sequence[str] = (),
    link_flags: Sequence[str] = (),
    identity: Sequence[str] = (),
) -> Path:
    """Path of the library built from `source`.

    `depends_on` are further files whose text decides the result (headers that `source` includes), `identity`
    further words that do (say a version). SimulatorError with the compiler's output if the build fails.
    """
    compiler = settings.compiler()
    words = [compiler_version(compiler), *flags, *link_flags, *identity]
    library = settings.cache_directory() / f"lib{name}-{_digest([source, *depends_on], words)}.so"
    if library.exists():
        return library
    with locked(library.with_suffix(".lock")):
        if not library.exists():
            _compile([compiler, *flags, "-shared", "-fPIC", str(source)], link_flags, library)
    return library


@functools.cache
def compiler_version(compiler: str) -> str:
    """The first line of `compiler --version`."""
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SimulatorError(f"the C++ compiler {compiler} does not run: {error}") from error
    return done.stdout.partition("\n")[0]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file `path` against other processes and threads, and makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(files: Iterable[Path], words: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in [*(file.read_bytes() for file in files), *(word.encode() for word in words)]:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:20]


def _compile(command: Sequence[str], link_flags: Sequence[str], library: Path) -> None:
    # Under another name first: a build that is cut short must not leave half a library under the right one.
    unfinished = library.with_suffix(f".{os.getpid()}.tmp")
    whole_command = [*command, "-o", str(unfinished), *link_flags]
    done = subprocess.run(whole_command, capture_output=True, text=True)
    if done.returncode != 0:
        unfinished.unlink(missing_ok=True)
        raise SimulatorError(
            f"building {library.stem} failed with exit status {done.returncode}\n"
            f"{' '.join(whole_command)}\n{done.stderr}"
        )
    os.replace(unfinished, library)
