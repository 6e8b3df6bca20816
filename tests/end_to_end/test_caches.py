"""Inductor's caches: a hit computes what a miss computed, in any process; whatever decides the code is in the key."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import inductor_mps_attention.codegen
import pytest
import torch

import inductor_mps_attention as ima

ROLES = dict.fromkeys(("forward", "backward_delta", "backward_dq", "backward_dkv"), 1)

SCRIPT = """
import json, os, sys, torch
import inductor_mps_attention as ima
from pathlib import Path
from torch._dynamo.utils import counters
from unittest import mock

def step(compile, **options):
    torch._dynamo.reset()
    counters.clear()
    ima.reset_stats()
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 20, 32).to("mps").requires_grad_() for _ in "qkv")
    attend = compile(lambda q, k, v: (q @ k.mT * 0.2).softmax(-1) @ v + 1, **options)
    out = attend(q, k, v)
    out.square().sum().backward()
    hits = counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"]
    return {"sum": out.sum().item(), "grad": k.grad.sum().item(), "hits": hits, **ima.stats()}

def ours(function, **options):
    return torch.compile(function, backend="mps_attention", **options)

artifacts, steps = Path("artifacts"), {}
if sys.argv[1] == "load":
    torch.compiler.load_cache_artifacts(artifacts.read_bytes())
steps["plain"] = step(ours)
if sys.argv[1] == "save":
    artifacts.write_bytes(torch.compiler.save_cache_artifacts()[0])
    steps["again"] = step(ours)
    with mock.patch.object(torch.backends.mps, "get_name", lambda: "Apple M1"):
        steps["chip"] = step(ours)
    steps["option"] = step(ours, options={"attention.min_seq_len": 64})
    with ima.registered():
        steps["registered"] = step(torch.compile)
        steps["registered again"] = step(torch.compile)
        steps["registered option"] = step(torch.compile, options={"attention.min_seq_len": 64})
print(json.dumps(steps))
"""


def run(folder: Path, cache: str, what: str = "") -> dict[str, Any]:
    """What a fresh process, which imports the copy of the package, finds with the cache of that name, a step each."""
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, what],
        cwd=folder,
        env={
            **os.environ,
            "MPS_ATTENTION_SIMULATOR": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(folder / cache),
            "PYTHONPATH": str(folder / "site"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with a copy of the package, a cache named "cache" and its artifacts; the steps of who filled them."""
    folder = tmp_path_factory.mktemp("caches")
    package, leave = folder / "site" / "inductor_mps_attention", shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(ima.__file__).parent, package, ignore=leave)
    source = Path(inductor_mps_attention.codegen.__file__).parent
    shutil.copytree(source, package / "codegen", ignore=leave, dirs_exist_ok=True)
    return folder, run(folder, "cache", "save")


def check_hit(hit: dict[str, Any], miss: dict[str, Any]) -> None:
    assert hit["hits"] > 0
    assert hit["fused"] == 0, "the pass does not run on a hit"
    assert hit["launches"] == ROLES, "the kernels do"
    assert (hit["sum"], hit["grad"]) == (miss["sum"], miss["grad"])


def test_options_and_the_chip_are_in_the_key(filled: tuple[Path, dict[str, Any]]) -> None:
    _, steps = filled
    for name in ("plain", "chip"):
        assert (steps[name]["hits"], steps[name]["fused"], steps[name]["launches"]) == (0, 1, ROLES), name
    check_hit(steps["again"], steps["plain"])
    check_hit(steps["registered again"], steps["registered"])
    for name in ("option", "registered option"):
        assert (steps[name]["hits"], steps[name]["declined"], steps[name]["launches"]) == (0, {"SHORT": 1}, {}), name
        assert steps[name]["sum"] == pytest.approx(steps["plain"]["sum"], rel=1e-5)


def test_a_second_process_hits_and_computes_the_same(filled: tuple[Path, dict[str, Any]]) -> None:
    folder, steps = filled
    check_hit(run(folder, "cache")["plain"], steps["plain"])


def test_artifacts_fill_an_empty_cache(filled: tuple[Path, dict[str, Any]]) -> None:
    """`torch.compiler.save_cache_artifacts` in one process, `load_cache_artifacts` in another."""
    folder, steps = filled
    check_hit(run(folder, "an empty one", "load")["plain"], steps["plain"])


def test_another_template_is_another_entry(filled: tuple[Path, dict[str, Any]]) -> None:
    """The same package, but for a comment at the end of one template."""
    folder, _ = filled
    template = folder / "site" / "inductor_mps_attention" / "codegen" / "templates" / "forward.metal.jinja"
    text = template.read_text()
    template.write_text(text + "// Another text.\n")
    try:
        steps = run(folder, "cache")
    finally:
        template.write_text(text)
    assert (steps["plain"]["hits"], steps["plain"]["fused"]) == (0, 1)


def test_another_torch_is_another_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    from inductor_mps_attention.config import Options
    from inductor_mps_attention.matching.fusion_pass import FusionPass

    before = FusionPass(Options()).uuid()
    assert FusionPass(Options()).uuid() == before
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert FusionPass(Options()).uuid() != before
