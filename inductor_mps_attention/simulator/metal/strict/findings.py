"""What the rules look at, and what they find. Knows no single rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ..preprocess import FILE_NAME
from ..source import Source
from ..translate_attributes import POSITIONS
from ..translate_declarations import ADDRESS_SPACES, Declaration, after_template_header, read_declarations, walk

_QUALIFIERS = ADDRESS_SPACES | {"const", "volatile"}


@dataclass(frozen=True, order=True)
class Finding:
    """A broken rule at a line of a file; `file` is FILE_NAME for the text itself, else a header."""

    line: int
    rule: str
    message: str
    file: str = FILE_NAME


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function: tokens start..stop-1, and its attributes as {name: text of the argument}."""

    start: int
    stop: int
    attributes: dict[str, str]


@dataclass(frozen=True)
class Function:
    """A function with a body. `attributes` stand before its parameters."""

    declaration: Declaration
    parameters: tuple[Parameter, ...]
    attributes: dict[str, str]
    is_kernel: bool
    is_template: bool

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def name_at(self) -> int:
        """The index of the name, or of the last token of an operator's."""
        assert self.declaration.parameters is not None
        return self.declaration.parameters - 1


@dataclass
class MetalText:
    """A Metal text: `raw` as it was written, `source` its tokens after preprocessing."""

    raw: str
    source: Source
    declarations: list[Declaration] = field(init=False)

    def __post_init__(self) -> None:
        self.declarations = read_declarations(self.source)

    def finding(self, rule: str, index: int, message: str) -> Finding:
        token = self.source.tokens[index]
        return Finding(token.line, rule, message, token.file)

    @cached_property
    def functions(self) -> list[Function]:
        """All functions with bodies, members included."""
        return [self._function(each) for each in walk(self.declarations) if each.kind == "function"]

    @cached_property
    def kernels(self) -> list[Function]:
        return [function for function in self.functions if function.is_kernel]

    @cached_property
    def classes(self) -> list[Declaration]:
        return [each for each in walk(self.declarations) if each.kind == "class"]

    @cached_property
    def declared_names(self) -> frozenset[str]:
        """Names of functions, classes, variables, aliases and macros that the text declares at any file scope."""
        return frozenset(each.name for each in walk(self.declarations) if each.name)

    def attribute_words(self) -> Iterator[tuple[int, str, str]]:
        """(index, name, argument) of every attribute of the text."""
        for index, token in enumerate(self.source.tokens):
            if token.text == "[" and self.source.is_attribute(index):
                yield from self._attribute(index)

    def _attribute(self, index: int) -> Iterator[tuple[int, str, str]]:
        source = self.source
        for start, stop in source.split_commas(index + 2, source.partner[index] - 1):
            name, at = source.text(start), start + 1
            while source.text(at) == "::" and at < stop:
                name, at = source.text(at + 1), at + 2
            called = source.text(at) == "(" and at < stop
            yield start, name, source.original(at + 1, source.partner[at]) if called else ""

    def attributes(self, start: int, stop: int) -> dict[str, str]:
        """The attributes of a span outside its brackets."""
        found: dict[str, str] = {}
        at = start
        while at < stop:
            if self.source.is_attribute(at):
                found |= {name: argument for _, name, argument in self._attribute(at)}
            at = self.source.skip(at)
        return found

    def _function(self, declaration: Declaration) -> Function:
        source, opening = self.source, declaration.parameters
        assert opening is not None
        attributes = self.attributes(declaration.start, opening)
        head = after_template_header(source, declaration.start)
        words = (source.text(at) for at in source.top_level(head, opening))
        pieces = source.split_commas(opening + 1, source.partner[opening])
        parameters = tuple(Parameter(start, stop, self.attributes(start, stop)) for start, stop in pieces)
        is_kernel = "kernel" in attributes or "kernel" in words
        return Function(declaration, parameters, attributes, is_kernel, head != declaration.start)

    def address_spaces(self, index: int) -> set[str]:
        """The address spaces among the specifiers before the `*` or `&` at `index`."""
        return self.source.words(self.specifiers(index), index) & ADDRESS_SPACES

    def specifiers(self, index: int) -> int:
        """The first token of the specifiers that end before `index`: words, `::` and template arguments."""
        source, at = self.source, index
        while at > 0:
            text = source.text(at - 1)
            if text == ">":
                opening = source.opening_angle(at - 1)
                if opening is None:
                    break
                at = opening
            elif text == "::" or (source.is_word(at - 1) and text not in ("return", "template", "operator")):
                at -= 1
            else:
                break
        return at

    def type_before(self, index: int) -> str:
        """The type's name before the declarator at `index`, `const` and address spaces skipped; "" if none."""
        at = index - 1
        while self.source.text(at) in _QUALIFIERS:
            at -= 1
        if self.source.text(at) == ">":
            opening = self.source.opening_angle(at)
            at = at if opening is None else opening - 1
        return self.source.text(at) if self.source.is_word(at) else ""


def is_position(parameter: Parameter) -> str:
    """The position attribute of a kernel parameter, "" if it has none."""
    return next((name for name in parameter.attributes if name in POSITIONS), "")


def is_threadgroup_variable(source: Source, index: int) -> bool:
    """Whether `threadgroup` at `index` starts a variable's declaration, rather than that of a pointer."""
    if source.text(index - 1) not in ("{", "}", ";", ")", ":"):
        return False
    for at in range(index + 1, len(source.tokens)):
        text = source.text(at)
        if text in ("[", ";", "=", "{"):
            return True
        if text in ("*", "&", "("):
            return False
    return False
