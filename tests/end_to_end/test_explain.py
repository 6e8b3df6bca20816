"""`explain`: every site with its verdict and place, no kernel run, nothing changed, nothing raised on a decline."""

from __future__ import annotations

import json

import torch
import torch.nn.functional as F

import inductor_mps_attention as ima
from tests.support.models import Decoder


def test_a_model_s_sites_with_their_specs() -> None:
    model = Decoder("manual", layers=2).to("mps")
    report = ima.explain(model, torch.randint(0, 65, (2, 33)).to("mps"))
    assert (report.fused, report.declined, report.graphs) == (2, 0, 1)
    site = report.sites[0]
    assert site.kind == "manual"
    assert "models.py:" in site.location
    assert (site.spec.q_len, site.spec.qk_head_dim, site.spec.band.upper) == (33, 16, 0)
    assert "2 of 2 attentions fused" in str(report)
    assert "causal" in str(report)


def test_the_report_is_json() -> None:
    fn = lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)  # noqa: E731
    report = ima.explain(fn, torch.randn(1, 2, 20, 32, device="mps"))
    loaded = json.loads(json.dumps(report.to_json()))
    assert (loaded["fused"], loaded["declined"]) == (0, 1)
    assert loaded["sites"][0]["reasons"][0]["reason"] == "DROPOUT"
    assert "DROPOUT" in str(report)


def test_nothing_runs_and_nothing_changes() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, q):
            self.calls.add_(1)
            return F.scaled_dot_product_attention(q, q, q)

    model = Counting().to("mps")
    report = ima.explain(model, torch.randn(1, 2, 20, 32, device="mps"))
    assert report.fused == 1
    assert model.calls.item() == 0
    assert ima.stats() == {"fused": 0, "declined": {}, "launches": {}}


def test_a_training_step_with_graph_breaks() -> None:
    model = Decoder("sdpa").to("mps")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = [p.detach().clone() for p in model.parameters()]

    def step(x):
        loss = model(x[:, :-1], x[:, 1:])
        loss.backward()
        return loss.item()

    report = ima.explain(step, torch.randint(0, 65, (2, 33)).to("mps"))
    assert report.fused == 2
    optimizer.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_many_calls_and_compiled_modules() -> None:
    """Dynamo stops compiling a function after eight backends; explain must not fall silent then."""
    model = torch.compile(Decoder("sdpa", layers=1).to("mps"), backend="mps_attention")
    x = torch.randint(0, 65, (2, 20)).to("mps")
    assert [ima.explain(model, x).fused for _ in range(10)] == [1] * 10


def test_dynamic_shapes_are_reported_by_their_symbols() -> None:
    q = torch.randn(1, 2, 20, 32, device="mps")
    torch._dynamo.mark_dynamic(q, 2)
    report = ima.explain(lambda q: F.scaled_dot_product_attention(q, q, q), q)
    assert report.fused == 1
    assert report.to_json()["sites"][0]["spec"]["q_len"].startswith("s")
