"""The tokenizer: what is one token, which line it is on, and that the text survives."""

from __future__ import annotations

import pytest

from inductor_mps_attention.simulator.metal.errors import ShaderCompileError
from inductor_mps_attention.simulator.metal.tokens import NUMBER, STRING, WORD, bracket_partners, tokenize


def texts(source: str) -> list[str]:
    return [token.text for token in tokenize(source)][:-1]


def test_closing_template_brackets_are_not_a_shift():
    assert texts("vec<vec<float,2>>x>>=1") == [*["vec", "<", "vec", "<", "float", ",", "2", ">", ">", "x", ">>=", "1"]]


def test_numbers_keep_their_exponents_suffixes_and_separators():
    numbers = ["1.0e-5f", "0x1Fu", ".5h", "1'000'000", "2.bf", "1e+10", "0b1010"]
    tokens = tokenize(" ".join(numbers))
    assert [token.text for token in tokens if token.kind == NUMBER] == numbers


def test_a_minus_after_a_hexadecimal_e_is_kept_out_of_reach():
    assert texts("a-1") == ["a", "-", "1"]


def test_strings_hide_comments_and_brackets():
    tokens = tokenize('host_name("a // ) \\" b") \'"\'')
    assert [token.text for token in tokens if token.kind == STRING] == ['"a // ) \\" b"', "'\"'"]


def test_comments_vanish_and_lines_stay():
    tokens = tokenize("a /* one\n two */ b // three\nc")
    assert [(token.text, token.line) for token in tokens][:-1] == [("a", 1), ("b", 2), ("c", 3)]
    assert "".join(token.space + token.text for token in tokens).count("\n") == 2


def test_line_markers_set_the_line_and_the_file():
    tokens = tokenize('# 7 "kernel.metal"\na\n# 40 "other.h" 1\nb\nc\n')
    assert [(token.text, token.file, token.line) for token in tokens][:-1] == [
        ("a", "kernel.metal", 7),
        ("b", "other.h", 40),
        ("c", "other.h", 41),
    ]


def test_pragmas_vanish():
    assert texts("#pragma clang loop unroll(full)\nfor") == ["for"]


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("a\n@", "unexpected character '@'", 2),
        ("a\n#define B", "directive '#define'", 2),
        ('a\n"b', "unexpected character", 2),
    ],
)
def test_what_starts_no_token_is_named_with_its_line(source: str, message: str, line: int):
    with pytest.raises(ShaderCompileError, match=message) as caught:
        tokenize(source)
    assert caught.value.line == line


def test_brackets_know_their_partners():
    tokens = tokenize("f(a[b], {c})")
    assert bracket_partners(tokens)[:10] == [-1, 10, -1, 5, -1, 3, -1, 9, -1, 7]
    assert [token.text for token in tokens if token.kind == WORD] == ["f", "a", "b", "c"]


@pytest.mark.parametrize(("source", "line"), [("(\n]", 2), ("\n(", 2), (")", 1)])
def test_a_stray_bracket_is_an_error_at_its_line(source: str, line: int):
    with pytest.raises(ShaderCompileError) as caught:
        bracket_partners(tokenize(source))
    assert caught.value.line == line
