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


def over_another_axis(q, k, v):
    return (q @ k.mT / 2).softmax(1) @ v


def test_stock_inductor_is_named_where_it_will_rewrite_wrongly() -> None:  # pytorch#196468
    q, k, v = (torch.randn(4, 4, 4, 8, device="mps") for _ in "qkv")
    report = ima.explain(over_another_axis, q, k, v)
    assert report.sites[0].reasons[0].reason is ima.Reason.SOFTMAX_AXIS
    assert "pytorch#196468" in report.sites[0].note
    assert "note: stock Inductor" in str(report)
    with torch._inductor.config.patch(pattern_matcher=False):
        assert ima.explain(over_another_axis, q, k, v).sites[0].note == ""
    stock = torch.compile(over_another_axis, backend="inductor")
    with torch.no_grad():
        wrong = stock(q, k, v)
    assert (wrong - over_another_axis(q, k, v)).abs().max() > 0.1, "stock is right now: the note must go"


def test_what_stock_miscompiles_is_right_with_our_pass_on_and_its_own_off() -> None:
    inputs = [torch.randn(4, 4, 4, 8, device="mps") for _ in "qkv"]
    compiled = torch.compile(over_another_axis, backend="mps_attention", options={"pattern_matcher": False})
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), over_another_axis(*inputs))
    assert ima.stats()["declined"] == {"SOFTMAX_AXIS": 1}


def test_stock_is_not_named_where_it_does_nothing() -> None:
    fn = lambda q, k, v: torch.tanh(q @ k.mT).softmax(-1) @ v  # noqa: E731
    report = ima.explain(fn, *(torch.randn(2, 4, 20, 32, device="mps") for _ in "qkv"))
    assert (report.declined, report.sites[0].note) == (1, "")


def test_inputs_as_keywords_and_the_line_that_decides() -> None:
    class Model(torch.nn.Module):
        def forward(self, *, hidden, bias=None):
            scores = hidden @ hidden.mT
            scores = scores + bias
            return scores.softmax(-1) @ hidden

    hidden, bias = torch.randn(2, 4, 20, 32, device="mps"), torch.randn(20, 20, device="mps")
    report = ima.explain(Model().to("mps"), hidden=hidden, bias=bias)
    (reason,) = report.sites[0].reasons
    assert reason.reason is ima.Reason.MASK
    assert reason.node is not None
    attention, deciding = (int(place.rpartition(":")[2]) for place in (report.sites[0].location, reason.location))
    assert deciding == attention - 1
    assert f"test_explain.py:{deciding})" in str(report)
    assert report.to_json()["sites"][0]["reasons"][0]["location"] == reason.location
