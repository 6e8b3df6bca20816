"""`threadgroup T x[N];` in a kernel body -> a reference into the threadgroup's arena. Anywhere else such a
variable is an error.
"""

from __future__ import annotations

import bisect

from .errors import ShaderCompileError
from .source import Source
from .tokens import WORD
from .translate_declarations import Declaration

_STATEMENT_STARTS = {"{", "}", ";", ")", ":"}
_LEADING = {"volatile", "static", "const"}
# What the edits below use. `first_use` runs an initialiser once per threadgroup: the arena is filled with ones bits
# before each threadgroup starts. `declared` notes at load time how large the arrays of a kernel are, and where
# they stand.
PRELUDE = """\
namespace msl_ {
template <int id> __attribute__((noinline, no_sanitize("thread"))) bool first_use() {
  unsigned& used = tg<unsigned, -id>("initialiser", 0);
  if (used == 1) return false;
  used = 1;
  return true;
}
struct Declared { const void* kernel; unsigned bytes; int line; Declared* next; };
static Declared* all_declared = nullptr;
template <auto kernel, class T, int id, int line> struct Declaration {
  static inline Declared entry{};
  static bool add() {
    entry = {(const void*)kernel, (unsigned)(sizeof(T) + 15) / 16 * 16, line, all_declared};
    all_declared = &entry;
    return true;
  }
};
template <auto kernel, class T, int id, int line> const bool declared = Declaration<kernel, T, id, line>::add();
template <class F> unsigned declared_bytes(F* kernel) {
  unsigned total = 0;
  for (Declared* at = all_declared; at; at = at->next) total += at->kernel == (const void*)kernel ? at->bytes : 0;
  return total;
}
template <class F> int largest_line(F* kernel) {
  const Declared* largest = nullptr;
  for (const Declared* at = all_declared; at; at = at->next)
    if (at->kernel == (const void*)kernel && (!largest || at->bytes > largest->bytes)) largest = at;
  return largest ? largest->line : 0;
}
}
"""


def translate_threadgroup_variables(
    source: Source, declarations: list[Declaration], kernels: list[Declaration]
) -> None:
    """Edits every threadgroup variable; gives their number for each kernel that has some, by the kernel's
    name.
    """
    bodies = sorted((k.body, k.stop, _own_name(source, k)) for k in kernels if k.body is not None)
    starts = [body[0] for body in bodies]
    number = 0
    for index, token in enumerate(source.tokens):
        if token.text != "threadgroup" or token.kind != WORD or not _starts_statement(source, index):
            continue
        end = _end(source, index)
        pieces = source.split_commas(index + 1, end)
        if not pieces or _is_pointer(source, *pieces[0]):
            continue
        at = bisect.bisect(starts, index) - 1
        if at < 0 or index >= bodies[at][1]:
            message = f"threadgroup variable '{source.original(index, end)}' stands outside a kernel's body"
            raise ShaderCompileError(message, token.line)
        number = _translate_one(source, index, end, pieces, number, bodies[at][2])


def _own_name(source: Source, kernel: Declaration) -> str:
    """A kernel as its own body calls it, with its template parameters; empty where one of these has no name."""
    if source.text(kernel.start) != "template":
        return kernel.name
    closing = source.closing_angle(kernel.start + 1)
    names = []
    for start, stop in source.split_commas(kernel.start + 2, closing or kernel.start + 2):
        end = next((at for at in source.top_level(start, stop) if source.text(at) == "="), stop)
        if end - start < 2 or not source.is_word(end - 1):
            return ""
        names.append(source.text(end - 1) + ("..." if source.text(end - 2) == "..." else ""))
    return f"{kernel.name}<{', '.join(names)}>"


def _starts_statement(source: Source, index: int) -> bool:
    return index > 0 and source.text(_specifiers_start(source, index) - 1) in _STATEMENT_STARTS


def _specifiers_start(source: Source, index: int) -> int:
    """The first of the specifiers before `threadgroup`: alignas(16) volatile threadgroup ..."""
    while True:
        before = index - 1
        if source.text(before) in _LEADING:
            index = before
        elif source.text(before) == ")" and source.text(source.partner[before] - 1) == "alignas":
            index = source.partner[before] - 1
        else:
            return index


def _end(source: Source, index: int) -> int:
    """The `;` of the declaration, or the `{` of a function whose result type starts with threadgroup."""
    while source.text(index) != ";":
        if index >= len(source.tokens) - 1:
            raise ShaderCompileError("a threadgroup declaration does not end", source.line(index))
        index = source.skip(index)
    return index


def _is_pointer(source: Source, start: int, stop: int) -> bool:
    """Whether the declarator is a pointer or reference: then the variable itself is the thread's own."""
    for at in source.top_level(start, stop):
        if source.text(at) in ("=", "[", "{"):
            return False
        if source.text(at) in ("*", "&"):
            return True
        if source.text(at) == "(":
            return source.text(at + 1) in ("*", "&")
    return False


def _translate_one(
    source: Source, index: int, end: int, pieces: list[tuple[int, int]], number: int, kernel: str
) -> int:
    name_at = _name(source, *pieces[0])
    base = source.edited(index + 1, name_at)
    if not base or not source.is_word(name_at):
        message = f"threadgroup variable '{source.original(index, end)}' cannot be read"
        raise ShaderCompileError(message, source.line(index))
    code = ""
    for start, stop in [(name_at, pieces[0][1]), *pieces[1:]]:
        number += 1
        code += _declare(source, base, start, stop, number, kernel)
    source.replace(_specifiers_start(source, index), end + 1, code.strip())
    return number


def _name(source: Source, start: int, stop: int) -> int:
    """The index of the declared name: the last word before the dimensions or the initialiser."""
    name = start
    for at in source.top_level(start, stop):
        if source.text(at) in ("=", "[", "{"):
            break
        name = at
    return name


def _declare(source: Source, base: str, start: int, stop: int, number: int, kernel: str) -> str:
    name, at = source.text(start), start + 1
    while source.text(at) == "[" and at < stop:
        at = source.partner[at] + 1
    dimensions, kind = source.edited(start + 1, at), f"msl_threadgroup_{number}"
    arena = f'::msl_::tg<{kind}, {number}>("{name}", __LINE__)'
    code = f" using {kind} = {base} {dimensions}; {kind}& {name} = {arena};"
    if kernel:
        code += f" (void)::msl_::declared<&{kernel}, {kind}, {number}, __LINE__>;"
    if at == stop:
        return code
    initialiser = source.edited(at, stop)
    bytes_of = f"((volatile char*)&{name})[b] = ((const char*)&{kind}_value)[b]"
    copy = f"for (unsigned long b = 0; b < sizeof({kind}); ++b) {bytes_of};"
    return code + f" if (::msl_::first_use<{number}>()) {{ const {kind} {kind}_value {initialiser}; {copy} }}"
