"""Each way into compiled attention, as `python -m benchmarks.matrix` prints them."""

from __future__ import annotations

import pytest

from benchmarks.matrix import Cell, cells, run


@pytest.mark.parametrize("cell", cells(), ids=lambda c: f"{c.shapes}-{c.route}-{c.wrapper.replace(' ', '_')}-{c.mode}")
def test_a_way_into_compiled_attention(cell: Cell) -> None:
    assert run(cell).fault == ""


def test_a_fault_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table can fail: with nothing fused, each cell says so."""
    monkeypatch.setenv("MPS_ATTENTION_FUEL", "0")
    assert "0 attentions fused" in run(Cell("static", "backend", "python", "no_grad")).fault
    assert "[0] direct launches" in run(Cell("static", "backend", "cpp text", "no_grad")).fault
