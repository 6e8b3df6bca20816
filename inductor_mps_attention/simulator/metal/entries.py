"""What is known of a kernel that can be launched: names, parameters and limits. Data alone."""

from __future__ import annotations

from dataclasses import dataclass

# Of the symbols that give a kernel's static threadgroup memory, and the line of its largest array.
SIZE_SUFFIX, LARGEST_SUFFIX = "_threadgroup_bytes", "_largest_array_line"


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter. `kind` is the launcher's name of what is passed, `index` the buffer or
    threadgroup index.

    `writable` is false for constant and const data; `optional` is true where a function constant may leave it
    unbound.
    """

    kind: str
    index: int
    text: str
    writable: bool
    optional: bool


@dataclass(frozen=True)
class Entry:
    """A kernel that can be launched: its host name, the symbol of its entry, its parameters and its declared
    limits.
    """

    name: str
    symbol: str
    function: str
    parameters: tuple[Parameter, ...]
    max_threads: int
    arguments: frozenset[str] = frozenset()


def selector(symbol: str) -> str:
    """The macro around an entry: a module has the entries whose macros pass their arguments on."""
    return symbol.upper()
