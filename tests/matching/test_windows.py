"""Windows whose width is an argument: one graph for all widths, and what had to be assumed of a width is guarded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from inductor_mps_attention.config import Options
from inductor_mps_attention.matching import fusion_pass
from inductor_mps_attention.matching.site import Site
from tests.matching.harness import tensors

LENGTH = 17


def positions(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])[None]


def comparisons(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
    i, j = positions(q, k)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(j <= i) & (j > i - width))


def filled(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
    i, j = positions(q, k)
    return (q @ k.mT).masked_fill((j > i) | (i - j >= width), -math.inf).softmax(-1) @ v


def triangles(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(width - 1).triu(1 - width)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def distance_kept(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
    i, j = positions(q, k)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(i - j).abs() < width)


def distance_filled(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
    i, j = positions(q, k)
    return (q @ k.mT).masked_fill((i - j).abs() >= width, -math.inf).softmax(-1) @ v


def distance_added(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
    i, j = positions(q, k)
    return (q @ k.mT + torch.where((i - j).abs() < width, 0.0, -math.inf)).softmax(-1) @ v


def compiled(function: Callable[..., Tensor]) -> tuple[Callable[..., Tensor], list[list[Site]]]:
    graphs: list[list[Site]] = []

    def backend(graph_module: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
        graphs.append(fusion_pass.run(graph_module, Options(), ("cpu",)))
        return graph_module.forward

    return torch.compile(function, backend=backend, dynamic=True), graphs


@pytest.mark.parametrize("function", [comparisons, filled, triangles, distance_kept, distance_filled, distance_added])
def test_one_graph_for_all_widths(function: Callable[..., Tensor]) -> None:
    q, k, v = tensors(2, 4, LENGTH, 16)
    ours, graphs = compiled(function)
    for width in (5, 3, LENGTH, 100):
        torch.testing.assert_close(ours(q, k, v, width), function(q, k, v, width))
    assert [[site.fused for site in sites] for sites in graphs] == [[True]]


@pytest.mark.parametrize("function", [comparisons, filled, distance_kept, distance_filled])
@pytest.mark.parametrize("width", [-1, -7])
def test_a_width_that_hides_everything_gets_its_own_graph(function: Callable[..., Tensor], width: int) -> None:
    """What holds for widths from 0 on was assumed; all rows are empty below, which eager answers by 0 or NaN."""
    q, k, v = tensors(2, 4, LENGTH, 16)
    ours, graphs = compiled(function)
    ours(q, k, v, 5)
    torch.testing.assert_close(ours(q, k, v, width), function(q, k, v, width), equal_nan=True)
    assert len(graphs) == 2 or function is comparisons
    torch.testing.assert_close(ours(q, k, v, 4), function(q, k, v, 4))
    assert len(graphs) <= 2


def last_rows(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of queries that are the last of the keys, as in generation."""
    return torch.arange(q.shape[-2])[:, None] + k.shape[-2] - q.shape[-2], torch.arange(k.shape[-2])[None]


def last_window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    i, j = last_rows(q, k)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(j <= i) & (j > i - 5))


def last_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    hidden = torch.arange(k.shape[-2]) < k.shape[-2] - 5
    return (q @ k.mT).masked_fill(hidden, -math.inf).softmax(-1) @ v


def first_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(torch.arange(k.shape[-2]) < 5)[None])


def ends(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    j = torch.arange(k.shape[-2])[None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(j < 2) | (j > k.shape[-2] - 3))


@pytest.mark.parametrize(
    ("function", "fused"), [(last_window, True), (last_keys, True), (first_keys, True), (ends, False)]
)
def test_any_range_of_keys_is_a_band_of_a_single_query(function: Callable[..., Tensor], fused: bool) -> None:
    """One graph for all lengths of the cache."""
    ours, graphs = compiled(function)
    for keys in (LENGTH, LENGTH + 1, 40):
        q, (k, v) = tensors(2, 4, 1, 16)[0], tensors(2, 4, keys, 16)[:2]
        torch.testing.assert_close(ours(q, k, v), function(q, k, v))
    assert [[site.fused for site in sites] for sites in graphs] == [[fused]]


def test_a_range_of_keys_is_no_band_of_several_queries() -> None:
    for function in (last_keys, first_keys):
        ours, graphs = compiled(function)
        q, k, v = tensors(2, 4, LENGTH, 16)
        torch.testing.assert_close(ours(q, k, v), function(q, k, v))
        assert [[site.fused for site in sites] for sites in graphs] == [[False]]
