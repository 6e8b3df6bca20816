"""A tuned file of the test's own, which planner and preference read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inductor_mps_attention import runtime
from inductor_mps_attention.tuning import current


@pytest.fixture
def tuned_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "tuned.json"
    monkeypatch.setenv("MPS_ATTENTION_TUNED", str(path))
    current.reload()
    yield path
    monkeypatch.undo()
    current.reload()
    runtime.clear()
