"""Inductor's caches across processes: a hit computes what a miss computed, and other options are another entry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys, torch, torch.nn.functional as F
import inductor_mps_attention as ima
from torch._dynamo.utils import counters
torch.manual_seed(0)
q, k, v = (torch.randn(1, 2, 20, 32).to("mps").requires_grad_() for _ in "qkv")
attend = torch.compile(lambda q, k, v: (q @ k.mT * 0.2).softmax(-1) @ v + 1, backend="mps_attention")
out = attend(q, k, v)
out.square().sum().backward()
hits = counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"]
print(json.dumps({"sum": out.sum().item(), "grad": k.grad.sum().item(), "hits": hits, **ima.stats()}))
"""


def run(cache: Path, **environment: str) -> dict:
    """What a fresh process prints that shares its caches with the others."""
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=cache,
        env={
            **os.environ,
            "MPS_ATTENTION_SIMULATOR": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_a_second_process_hits_and_computes_the_same(tmp_path: Path) -> None:
    roles = dict.fromkeys(("forward", "backward_delta", "backward_dq", "backward_dkv"), 1)
    miss = run(tmp_path)
    assert (miss["hits"], miss["fused"], miss["launches"]) == (0, 1, roles)
    hit = run(tmp_path)
    assert hit["hits"] > 0
    assert hit["fused"] == 0, "the pass does not run on a hit"
    assert hit["launches"] == roles, "the operators do"
    assert (hit["sum"], hit["grad"]) == (miss["sum"], miss["grad"])
    unfused = run(tmp_path, MPS_ATTENTION_FUEL="0")
    assert (unfused["hits"], unfused["fused"], unfused["launches"]) == (0, 0, {})
    assert unfused["sum"] == pytest.approx(miss["sum"], rel=1e-5)
