"""Peak memory of a training step: what is claimed of it, and that leaving kernels out does not change it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmarks import engines, workloads
from benchmarks.contestants import OURS
from benchmarks.engines.engine import EngineUnavailable

CASE = {"dtype": "float32", "batch": 1, "heads": 8, "head_dim": 64, "causal": True}


def peaks(engine: str, contestants: list[str], **sizes: Any) -> dict[str, int]:
    """Bytes of a training step beyond its inputs."""
    made = engines.engine(engine)
    with made.installed():
        results = workloads.memory(workloads.Run(made, {}, contestants, 0.0), CASE | sizes)["results"]
    return {name: result["peak_bytes"] for name, result in results.items()}


def test_leaving_kernels_out_allocates_the_same_bytes() -> None:
    contestants = ["sdpa", "manual", "stock_compiled", "compiled"]
    sizes = {"heads": 2, "length": 96}
    assert peaks("allocations", contestants, **sizes) == peaks("simulator", contestants, **sizes)


def test_a_training_step_grows_with_the_length_and_takes_a_fraction_of_eager() -> None:
    """Doubling the length doubles ours, and multiplies eager by four; 6 % of eager at most at 4096."""
    short, long = (peaks("allocations", ["sdpa", "manual", "compiled"], length=length) for length in (2048, 4096))
    for ours in (OURS, "compiled"):
        assert long[ours] <= 2.1 * short[ours]
        for eager in ("sdpa", "manual"):
            assert long[ours] <= 0.06 * long[eager]
    assert long["sdpa"] >= 3.5 * short["sdpa"], "the measure does not see what it should"


def test_kernels_run_again_after_the_engine_that_leaves_them_out() -> None:
    q = torch.randn(1, 2, 40, 16, device="mps")

    def attend(q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q) * 2

    with engines.engine("allocations").installed():
        torch.compile(attend, backend="mps_attention")(q)
    torch.testing.assert_close(torch.compile(attend, backend="mps_attention")(q), attend(q))


def test_it_measures_nothing_else() -> None:
    with pytest.raises(EngineUnavailable, match="memory alone"):
        engines.engine("allocations").measure(lambda: None, 0.0)
