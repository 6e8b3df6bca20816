"""`python -m inductor_mps_attention ...`"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inductor_mps_attention.__main__ import main


def test_kernel_prints_metal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "backward_dkv", "--dtype", "bfloat16", "--head-dim", "80", "--causal"]) == 0
    text = capsys.readouterr().out
    assert "#include <metal_stdlib>" in text
    assert "simdgroup_multiply_accumulate" in text


def test_kernel_says_why_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "forward", "--head-dim", "300"]) == 1
    assert "300" in capsys.readouterr().err


def test_explain_a_function_of_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "user_module.py").write_text(
        "import torch, torch.nn.functional as F\n"
        "def build():\n"
        "    q = torch.randn(1, 2, 16, 32, device='mps')\n"
        "    return lambda q: F.scaled_dot_product_attention(q, q, q), (q,)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "user_module:build", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fused"] == 1
    assert main(["explain", "user_module"]) == 2


def test_doctor_finds_all_well_on_the_simulated_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "simulated" in printed
    assert "BAD" not in printed
