"""Source -> its declarations: where each starts and ends, what it declares, where its parameters and its body
are.

Only declarations at namespace and class scope are told apart; the inside of a function body is one span.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .source import Source
from .tokens import END

ADDRESS_SPACES = {
    "device",
    "constant",
    "threadgroup",
    "thread",
    "ray_data",
    "object_data",
    "threadgroup_imageblock",
}
_CLASS_KEYS = {"struct", "class", "union"}
_ACCESS = {"public", "private", "protected"}
# Words before a parenthesis that opens no parameter list.
_NOT_A_CALL = {"decltype", "alignas", "__attribute__", "noexcept", "sizeof"}


@dataclass
class Declaration:
    """Tokens start..stop-1. `kind` is "namespace", "class", "function", "instantiation" or "other".

    `body` is the index of the `{` that opens the body or the members, `parameters` that of the `(` of a
    function. `members` are the declarations inside a namespace or class. `scope` is what qualifies the name,
    and empty where it cannot be said: in classes and in namespaces without a name.
    """

    kind: str
    start: int
    stop: int
    name: str
    body: int | None = None
    parameters: int | None = None
    members: list[Declaration] = field(default_factory=list)
    scope: str = ""


def read_declarations(source: Source, scope: str = "::") -> list[Declaration]:
    """The declarations of a whole text, which stands in `scope`."""
    declarations = _read_scope(source, 0, len(source.tokens) - 1)
    _set_scopes(source, declarations, scope)
    return declarations


def _set_scopes(source: Source, declarations: list[Declaration], scope: str) -> None:
    for declaration in declarations:
        declaration.scope = scope
        inner = ""
        if declaration.kind == "namespace" and scope:
            names = [source.text(at) for at in range(declaration.start, declaration.body or 0)]
            path = "".join(names[names.index("namespace") + 1 :]) if "namespace" in names else None
            if path is None:  # extern "C" {
                inner = scope
            elif path.replace("::", "").isidentifier():
                inner = f"{scope}{path}::"
        _set_scopes(source, declaration.members, inner)


def walk(declarations: list[Declaration]) -> Iterator[Declaration]:
    """All declarations, each before its members."""
    for declaration in declarations:
        yield declaration
        yield from walk(declaration.members)


def _read_scope(source: Source, start: int, stop: int) -> list[Declaration]:
    declarations = []
    while start < stop:
        if source.text(start) in _ACCESS and source.text(start + 1) == ":":
            start += 2
            continue
        if source.text(start) == ";":
            start += 1
            continue
        declaration = _read_one(source, start, stop)
        declarations.append(declaration)
        start = declaration.stop
    return declarations


def after_template_header(source: Source, start: int) -> int:
    """The index after `template <...>` (one or several), or `start`."""
    while source.text(start) == "template" and source.text(start + 1) == "<":
        closing = source.template_header_end(start + 1)
        if closing is None:
            break
        start = closing + 1
    return start


def _read_one(source: Source, start: int, stop: int) -> Declaration:
    head = after_template_header(source, start)
    if head == start and source.text(start) == "template":
        return Declaration("instantiation", start, _after_semicolon(source, start, stop), "")
    if _opens_namespace(source, head):
        return _read_namespace(source, start, head, stop)
    scan = _Head()
    at = head
    while at < stop:
        text = source.text(at)
        if text == ";":
            return _simple(source, start, head, at + 1, scan)
        if source.is_attribute(at):
            at = source.after_attribute(at)
            continue
        if text == "<" and source.is_template_bracket(at):
            closing = source.closing_angle(at)
            if closing is not None:
                at = closing + 1
                continue
        if text == "{":
            if scan.has_body(source, at):
                return _with_body(source, start, at, stop, scan)
            at = source.skip(at)
            continue
        scan.see(source, at)
        at = source.skip(at)
    return Declaration("other", start, stop, "")


class _Head:
    """What has been seen of a declaration before its body."""

    def __init__(self) -> None:
        self.class_at: int | None = None
        self.parameters: int | None = None
        self.has_initialiser = False
        self.in_member_initialisers = False
        self.is_enum = False

    def see(self, source: Source, at: int) -> None:
        text, before = source.text(at), source.text(at - 1)
        if text in _CLASS_KEYS and self.parameters is None:
            self.class_at = at
        elif text == "enum":
            self.is_enum = True
        elif text == "=" and before != "operator" and self.parameters is None:
            self.has_initialiser = True
        elif text == ":" and self.parameters is not None:
            self.in_member_initialisers = True
        elif text == "(" and self.parameters is None and before not in _NOT_A_CALL and not self.has_initialiser:
            is_operator_name = before == "operator" and source.text(at + 1) == ")"
            if not is_operator_name:
                self.parameters = at

    def has_body(self, source: Source, brace: int) -> bool:
        """Whether the `{` opens a class or a function, rather than an enumeration, an initialiser or a
        member's `x{...}`.
        """
        if self.is_enum and self.parameters is None:
            return False
        if self.parameters is None:
            return self.class_at is not None and not self.has_initialiser
        member_initialiser = self.in_member_initialisers and source.text(brace - 1) not in (")", "}")
        return not member_initialiser


def _opens_namespace(source: Source, head: int) -> bool:
    first, second = source.text(head), source.text(head + 1)
    linkage = first == "extern" and second.startswith('"') and source.text(head + 2) == "{"
    return linkage or first == "namespace" or (first == "inline" and second == "namespace")


def _read_namespace(source: Source, start: int, head: int, stop: int) -> Declaration:
    at = head
    while at < stop and source.text(at) not in ("{", ";"):
        at = source.skip(at)
    if source.text(at) != "{":  # namespace a = b;
        return Declaration("other", start, min(at + 1, stop), "")
    end = source.partner[at]
    return Declaration("namespace", start, end + 1, "", body=at, members=_read_scope(source, at + 1, end))


def _simple(source: Source, start: int, head: int, stop: int, scan: _Head) -> Declaration:
    """A declaration that ends with `;` and has no body: a variable, an alias, a prototype."""
    if source.text(head) == "using" and source.text(head + 2) == "=":
        return Declaration("other", start, stop, source.text(head + 1))
    if scan.parameters is not None:
        return Declaration("other", start, stop, _name_before(source, scan.parameters))
    name = ""
    for at in source.top_level(head, stop):
        if source.text(at) in ("=", "[", "{", ";", ":"):
            break
        if source.is_word(at):
            name = source.text(at)
    return Declaration("other", start, stop, name)


def _with_body(source: Source, start: int, brace: int, stop: int, scan: _Head) -> Declaration:
    end = source.partner[brace]
    if scan.parameters is not None:
        name = _name_before(source, scan.parameters)
        return Declaration("function", start, end + 1, name, body=brace, parameters=scan.parameters)
    assert scan.class_at is not None
    members = _read_scope(source, brace + 1, end)
    after = _after_semicolon(source, end + 1, stop)
    return Declaration("class", start, after, _class_name(source, scan.class_at, brace), body=brace, members=members)


def _class_name(source: Source, class_at: int, brace: int) -> str:
    name = ""
    for at in source.top_level(class_at + 1, brace):
        if source.text(at) == ":":
            break
        if source.is_word(at) and source.text(at) not in _NOT_A_CALL and source.text(at) != "final":
            name = source.text(at)
    return name


def _name_before(source: Source, parenthesis: int) -> str:
    """The name of a function whose parameter list opens at `parenthesis`; `operator` for any operator."""
    at = parenthesis - 1
    if source.text(at) == ">":
        opening = source.opening_angle(at)
        at = at if opening is None else opening - 1
    if source.is_word(at):
        return source.text(at)
    return "operator"


def _after_semicolon(source: Source, start: int, stop: int) -> int:
    at = start
    while at < stop and source.text(at) != ";" and source.tokens[at].kind != END:
        at = source.skip(at)
    return min(at + 1, stop)
