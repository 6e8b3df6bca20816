"""What a translated text is compiled for: how kernels, their entries and threadgroup variables are written there.

The CPU is here; another engine brings a target of its own. A target knows C++ spellings and no grammar of Metal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .entries import LARGEST_SUFFIX, SIZE_SUFFIX, Entry, selector

# What the CPU's edits use. `first_use` runs an initialiser once per threadgroup: the arena is filled with ones bits
# before each threadgroup starts. `declared` notes at load time how large the arrays of a kernel are, and where
# they stand. It knows the kernel by a key, since its address would bring the kernel itself into every module.
PRELUDE = """\
namespace msl_ {
template <class T, unsigned long N, class V>
inline __attribute__((always_inline)) void fill_elements(T (&array)[N], long first, long last, const V& value) {
  for (long at = first; at <= last; ++at) array[at] = value;
}
template <int id> __attribute__((noinline, no_sanitize("thread"))) bool first_use() {
  unsigned& used = tg<unsigned, -id>("initialiser", 0);
  if (used == 1) return false;
  used = 1;
  return true;
}
template <auto kernel> struct KernelKey { static inline char key{}; };
struct Declared { const void* kernel; unsigned bytes; int line; Declared* next; };
static Declared* all_declared = nullptr;
static __attribute__((noinline)) bool declare(Declared* variable) {
  variable->next = all_declared;
  all_declared = variable;
  return true;
}
template <auto kernel, class T, int id, int line> struct Declaration {
  static inline Declared entry{&KernelKey<kernel>::key, (unsigned)(sizeof(T) + 15) / 16 * 16, line, nullptr};
};
template <auto kernel, class T, int id, int line>
const bool declared = declare(&Declaration<kernel, T, id, line>::entry);
template <auto kernel> unsigned declared_bytes() {
  unsigned total = 0;
  for (Declared* at = all_declared; at; at = at->next)
    total += at->kernel == &KernelKey<kernel>::key ? at->bytes : 0;
  return total;
}
template <auto kernel> int largest_line() {
  const Declared* largest = nullptr;
  for (const Declared* at = all_declared; at; at = at->next)
    if (at->kernel == &KernelKey<kernel>::key && (!largest || at->bytes > largest->bytes)) largest = at;
  return largest ? largest->line : 0;
}
}
"""


@dataclass(frozen=True)
class ThreadgroupVariable:
    """`threadgroup base name dimensions initialiser;`, all but `number` as C++ text; `initialiser` may be empty.

    `number` counts from 1 in a text. `kernel` is the kernel's name inside its own body, empty where it has none.
    """

    name: str
    base: str
    dimensions: str
    initialiser: str
    number: int
    kernel: str


class Target(Protocol):
    """The C++ of one engine."""

    keeps_pragmas: bool
    """Whether `#pragma` lines stay in the text; they change no result."""
    kernel_specifier: str
    """What stands in the place of the word `kernel`."""
    scope: str
    """The namespace that the text is put into: "::" for none, else with `::` at both ends."""

    def entry(self, entry: Entry, reference: str) -> str:
        """The code of the entry that calls the kernel function at `reference`; it stands behind the kernel."""

    def threadgroup_variable(self, variable: ThreadgroupVariable) -> str:
        """The statements that declare the variable, on one line."""


class CpuTarget:
    """C++17 for the CPU engine: threadgroup variables are references into the threadgroup's arena."""

    keeps_pragmas = False
    kernel_specifier = "inline"  # so that modules without its entry need not contain it
    scope = "::"

    def entry(self, entry: Entry, reference: str) -> str:
        symbol, parameters = entry.symbol, entry.parameters
        kinds = ", ".join(f"::msl_::ki<::msl_::{parameter.kind}, {parameter.index}>" for parameter in parameters)
        signature = f"void {symbol}(const MslArgs* arguments, const MslThread* thread)"
        size = f"unsigned {symbol}{SIZE_SUFFIX}() {{ return ::msl_::declared_bytes<{reference}>(); }}"
        largest = f"int {symbol}{LARGEST_SUFFIX}() {{ return ::msl_::largest_line<{reference}>(); }}"
        call = f"{signature} {{ ::msl_::kis<{kinds}>::call({reference}, arguments, thread); }}"
        return f' {selector(symbol)}(extern "C" {call} extern "C" {size} extern "C" {largest})'

    def threadgroup_variable(self, variable: ThreadgroupVariable) -> str:
        name, number, kind = variable.name, variable.number, f"msl_threadgroup_{variable.number}"
        arena = f'::msl_::tg<{kind}, {number}>("{name}", __LINE__)'
        code = f" using {kind} = {variable.base} {variable.dimensions}; {kind}& {name} = {arena};"
        if variable.kernel:
            code += f" (void)::msl_::declared<&{variable.kernel}, {kind}, {number}, __LINE__>;"
        if not variable.initialiser:
            return code
        bytes_of = f"((volatile char*)&{name})[b] = ((const char*)&{kind}_value)[b]"
        copy = f"for (unsigned long b = 0; b < sizeof({kind}); ++b) {bytes_of};"
        value = f"const {kind} {kind}_value {variable.initialiser};"
        return code + f" if (::msl_::first_use<{number}>()) {{ {value} {copy} }}"


CPU = CpuTarget()
