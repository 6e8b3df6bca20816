"""Each strict rule has texts that trip it, at the right line, and near misses on which all rules are silent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inductor_mps_attention import simulator
from inductor_mps_attention.simulator.metal import ShaderCompileError, compile_shader
from inductor_mps_attention.simulator.metal.strict import NOT_ENFORCED, RULES, check, dialects, examine

from .strict_cases import PAIRS, SHIM_PAIRS, body


def _each(side: int) -> Iterator[object]:
    for rule, pairs in PAIRS.items():
        for number, pair in enumerate(pairs):
            yield pytest.param(rule, pair[side], id=f"{rule}-{number}")


@pytest.mark.parametrize(("rule", "text"), list(_each(0)))
def test_a_broken_rule_is_reported_at_its_line(rule: str, text: str):
    (line,) = [number for number, each in enumerate(text.splitlines(), 1) if "HERE" in each]
    assert (rule, line) in {(report.kind, report.line) for report in simulator.check_strict(text)}


@pytest.mark.parametrize(("rule", "text"), list(_each(1)))
def test_a_near_miss_breaks_no_rule_at_all(rule: str, text: str):
    assert [str(report) for report in simulator.check_strict(text)] == [], rule


@pytest.mark.parametrize("rule", SHIM_PAIRS)
def test_what_the_shim_lacks_does_not_compile(rule: str):
    with pytest.raises(ShaderCompileError):
        compile_shader(body(SHIM_PAIRS[rule][0]))


def test_what_the_shim_has_compiles():
    statements = "\n".join(f"{{ {accepted} }}" for _, accepted in SHIM_PAIRS.values())
    assert list(compile_shader(body(statements))) == ["k"]


def test_the_rules_that_need_types_are_tested_too():
    assert dialects.is_available(), check.NO_LIBCLANG


def test_every_rule_has_a_pair_and_every_enforcer_is_tested():
    for rule in RULES.values():
        tested = SHIM_PAIRS if rule.enforcers == ("shim",) else PAIRS
        assert rule.id in tested, rule.id
    assert not RULES.keys() & NOT_ENFORCED.keys()
    assert PAIRS.keys() | SHIM_PAIRS.keys() == RULES.keys()


def test_no_id_of_the_list_is_forgotten():
    sizes = {"V": 5, "L": 15, "A": 12, "K": 8, "T": 16, "M": 7}
    ids = {f"{letter}{number}" for letter, size in sizes.items() for number in range(1, size + 1)}
    assert RULES.keys() | NOT_ENFORCED.keys() == ids | {"Surface"}


def test_what_shipping_text_does_is_a_note_on_others_text():
    text = body("a[0] = 1.0; threadgroup float* p = a;")
    verdict = examine(text, own=False)
    assert [report.kind for report in verdict.reports] == ["A2"]
    assert "T6" in {note.kind for note in verdict.notes}


def test_headers_are_judged_as_others_text():
    text = body("a[0] = c10::metal::log1p(s);", "#include <c10/metal/special_math.h>")
    assert [str(report) for report in simulator.check_strict(text)] == []


def test_a_fault_behind_torchs_headers_is_still_seen():
    text = body("threadgroup float* p = a; // HERE", "#include <c10/metal/utils.h>")
    (report,) = simulator.check_strict(text, own=False)
    assert report.kind == "A2"
    assert text.splitlines()[report.line - 1].endswith("HERE")


def test_without_libclang_the_text_rules_remain_and_one_warning_says_so(monkeypatch):
    monkeypatch.setattr(dialects, "is_available", lambda: False)
    check._warn_once.cache_clear()
    text = body("threadgroup float* p = a; a[0] = 1.0;")
    with pytest.warns(UserWarning, match="pip install libclang"):
        reports = simulator.check_strict(text)
    assert [report.kind for report in reports] == ["T6"]
    assert [note.kind for note in examine(text).notes] == ["libclang"]
