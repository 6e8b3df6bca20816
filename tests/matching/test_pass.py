"""The pass itself: options, totals, failures, and graphs that it leaves alone."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from inductor_mps_attention.config import Options
from inductor_mps_attention.errors import Declined, Reason
from inductor_mps_attention.matching import fusion_pass, proof, rewrite
from inductor_mps_attention.matching.fusion_pass import FusionPass
from tests.matching.harness import tensors

sdpa = F.scaled_dot_product_attention


def qkv() -> tuple[torch.Tensor, ...]:
    return tensors(2, 4, 33, 64)


def two(q, k, v):
    return (sdpa(q, k, v) @ k.mT).softmax(-1) @ v


def test_cpu_tensors_are_left_to_stock(fused):
    result = fused(sdpa, *qkv(), device_types=("mps",)).declined(Reason.DEVICE).equals_fp64()
    assert "cpu" in result.messages()[0]


def test_location_is_the_users_line(fused):
    result = fused(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, *qkv())
    file, line = result.sites[0].location.rsplit(":", 1)
    assert file == __file__
    assert "softmax" in Path(__file__).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize("fuel", [0, 1, 2])
def test_fuel_bisects(fused, fuel):
    result = fused(two, *qkv(), options=Options(fuel=fuel)).fused(fuel).equals_fp64()
    assert [site.fused for site in result.sites] == [place < fuel for place in range(2)]
    assert all(site.reasons[0].reason is Reason.FUEL for site in result.sites if not site.fused)


def test_strict_raises_on_a_decline(fused):
    with pytest.raises(Exception, match="dropout with p=0") as caught:
        fused(lambda q, k, v: sdpa(q, k, v, dropout_p=0.5), *qkv(), options=Options(strict=True))
    assert isinstance(caught.value.__cause__, Declined) or "Declined" in str(caught.value)


@pytest.mark.parametrize("where", [(proof, "choose_dtype"), (rewrite, "flash_forward")], ids=["match", "rewrite"])
def test_a_failure_of_ours_leaves_the_graph_alone(fused, monkeypatch, where):
    def broken(*_):
        raise KeyError("ours")

    monkeypatch.setattr(*where, broken)
    graphs, sites = [], []

    def backend(graph_module, _):
        before = str(graph_module.graph)
        sites.extend(fusion_pass.run(graph_module, Options(), ("cpu",)))
        graphs.append((before, str(graph_module.graph)))
        return graph_module.forward

    with pytest.warns(UserWarning, match="matching failed") as caught:
        out = torch.compile(two, backend=backend)(*qkv())
    assert graphs[0][0] == graphs[0][1]
    assert {reason.reason for site in sites for reason in site.reasons} == {Reason.INTERNAL}
    assert any("KeyError" in str(warning.message) for warning in caught)
    torch.testing.assert_close(out, two(*qkv()))
    with pytest.raises(Exception, match="ours"):
        fused(two, *qkv(), options=Options(strict=True))


def test_a_graph_that_fails_lint_is_restored():
    def lint() -> None:
        raise RuntimeError("lint")

    texts = []

    def backend(graph_module, _):
        before = str(graph_module.graph)
        graph_module.graph.lint = lint
        with pytest.warns(UserWarning, match="matching failed"):
            sites = fusion_pass.run(graph_module, Options(), ("cpu",))
        with pytest.raises(RuntimeError, match="lint"):
            fusion_pass.run(graph_module, Options(strict=True), ("cpu",))
        texts.append((before, str(graph_module.graph)))
        assert [(site.fused, site.reasons[0].reason) for site in sites] == [(False, Reason.INTERNAL)] * 2
        return graph_module.forward

    torch.compile(two, backend=backend)(*qkv())
    assert texts[0][0] == texts[0][1]


def test_short_sequences(fused):
    fused(sdpa, *qkv(), options=Options(min_seq_len=34)).declined(Reason.SHORT)
    fused(sdpa, *qkv(), options=Options(min_seq_len=33)).fused()


def test_short_sequences_leave_no_shape_guard():
    graphs = []

    def backend(graph_module, _):
        graphs.append(fusion_pass.run(graph_module, Options(min_seq_len=20), ("cpu",)))
        return graph_module.forward

    compiled = torch.compile(sdpa, backend=backend, dynamic=True)
    for length in (33, 7, 64):
        compiled(*tensors(2, 4, length, 64))
    assert len(graphs) == 1


def test_patterns(fused):
    result = fused(two, *qkv(), options=Options(patterns=("manual",))).fused(1)
    assert [site.fused for site in result.sites] == [False, True]


def test_totals_and_recording(fused):
    with fusion_pass.recording() as sites:
        fused(two, *qkv())
        fused(lambda q, k, v: sdpa(q, k, v, dropout_p=0.5), *qkv())
    assert [site.fused for site in sites] == [True, True, False]
    assert fusion_pass.totals() == (2, {"DROPOUT": 1})
    fusion_pass.reset_totals()
    assert fusion_pass.totals() == (0, {})


def test_uuid_changes_with_what_changes_results():
    plain = FusionPass(Options()).uuid()
    assert plain == FusionPass(Options()).uuid()
    assert plain != FusionPass(Options(min_seq_len=9)).uuid()
    assert plain != FusionPass(Options(), ("cpu",)).uuid()


@pytest.mark.parametrize("head_dim", [257, 300])
def test_head_dims_that_no_kernel_has(fused, head_dim):
    fused(sdpa, *tensors(2, 4, 33, head_dim)).declined(Reason.HEAD_DIM).equals_fp64()


def test_a_classifiers_softmax_is_no_site(fused):
    result = fused(lambda x, w: (x @ w).softmax(-1).amax(), *tensors(8, 8, count=2))
    assert not result.sites


def test_inside_functorch_grad(fused):
    def loss(q, k, v):
        return torch.func.grad(lambda q: ((q @ k.mT).softmax(-1) @ v).sum())(q)

    fused(loss, *qkv(), grad=False).declined(Reason.REGION).equals_fp64(forward=1e-5)


def test_inside_vmap(fused):
    fused(torch.vmap(two), *qkv(), grad=False).declined(Reason.REGION).equals_fp64(forward=1e-5)


def test_no_grad_around_the_scores(fused):
    def attention(q, k, v):
        with torch.no_grad():
            weights = (q @ k.mT).softmax(-1)
        return weights @ v

    fused(attention, *qkv()).declined(Reason.REGION).equals_fp64()


def test_autocast_casts_as_eager_does(fused):
    def attention(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return (q @ k.mT * 0.125).softmax(-1) @ v

    result = fused(attention, *qkv()).fused()
    assert result.sites[0].spec.dtype is torch.bfloat16
    assert result.outputs[0].dtype is torch.bfloat16
    oracle = attention(*(t.detach() for t in result.inputs))
    torch.testing.assert_close(result.outputs[0], oracle, rtol=5e-2, atol=5e-2)


def test_autocast_that_ends_inside_the_attention(fused):
    def attention(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            scores = q @ k.mT
        return scores.float().softmax(-1) @ v

    result = fused(attention, *qkv())
    assert not any(site.fused for site in result.sites)
    assert Reason.REGION in {reason.reason for site in result.sites for reason in site.reasons}


def test_a_broken_scale_is_caught_by_the_numbers(fused, monkeypatch):
    """Guards the tests: they must see a matcher that gets the scale wrong."""
    resolve = proof.resolve_scale

    def doubled(candidate, head_dim):
        scale = resolve(candidate, head_dim)
        return type(scale)(scale.number * 2, scale.on_q, scale.specialised)

    monkeypatch.setattr(proof, "resolve_scale", doubled)
    with pytest.raises(AssertionError, match="error"):
        fused(sdpa, *qkv()).fused().equals_fp64()


def test_no_warning_on_the_way(fused):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="mps_attention")
        fused(two, *qkv(), dynamic=True).fused(2)
