"""Which kernels need no fibers: those from which no barrier, lane operation or threadgroup variable can be
reached.

Works on names alone and errs to the safe side: everything that a name may mean counts. A kernel of this kind
is run as a plain loop over its threads, several times as fast.
"""

from __future__ import annotations

import re

from .entries import Entry
from .source import Source
from .translate_declarations import Declaration, walk

_COLLECTIVE = re.compile(
    r"(simd|quad)_(sum|product|max|min|and|or|xor|prefix_\w+|shuffle\w*|broadcast\w*|ballot|all|any|vote"
    r"|is_first|active_threads_mask|is_helper_thread)"
    r"|simdgroup_\w*(load|store|multiply\w*|matrix|8x8|barrier|async\w*|event)|make_filled_simdgroup_matrix"
    r"|simdgroup|threadgroup|threadgroup_barrier|atomic_thread_fence|mem_flags"
)


class CallGraph:
    """For each declared name the words of every declaration of that name."""

    def __init__(self, source: Source, declarations: list[Declaration]):
        self._words: dict[str, set[str]] = {}
        self._collective: dict[str, bool] = {}
        for declaration in walk(declarations):
            if declaration.name and declaration.kind != "namespace":
                words = self._words.setdefault(declaration.name, set())
                words |= source.words(declaration.start, declaration.stop)

    def is_independent(self, entry: Entry) -> bool:
        """Whether the threads of a kernel never meet each other except in device memory."""
        if any(parameter.kind == "A_TG" for parameter in entry.parameters):
            return False
        seen: set[str] = set()
        pending = {entry.function} | entry.arguments
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            words = self._words.get(name, set())
            if any(self._is_collective(word) for word in words):
                return False
            pending |= words & self._words.keys() - seen
        return True

    def _is_collective(self, word: str) -> bool:
        known = self._collective.get(word)
        if known is None:
            known = self._collective[word] = _COLLECTIVE.fullmatch(word) is not None
        return known
