"""Few queries in Inductor's graph: parts of the keys are buffers of its own, their number follows the length."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import inductor_mps_attention as ima
from tests.support import budgets

DECODE = {"decode", "decode_merge"}


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def launches(compiled, queries: int, keys: int, most_queries: int | None = None) -> set[str]:
    """The kernels that one call launches, whose result is checked. most_queries: what the graph may know of them."""
    q, k, v = torch.randn(2, 4, queries, 16), torch.randn(2, 2, keys, 16), torch.randn(2, 2, keys, 16)
    own = [t.to("mps") for t in (q, k, v)]
    if most_queries is not None:
        torch._dynamo.mark_dynamic(own[0], 2, min=2, max=most_queries)
    ima.reset_stats()
    with torch.no_grad():
        out = compiled(*own)
    budgets.check("out", out, attend(q.double(), k.double(), v.double()), budgets.FORWARD[torch.float32])
    return set(ima.stats()["launches"])


def test_one_text_serves_a_growing_cache() -> None:
    """The number of parts is size arithmetic of the graph, never a guard."""
    compiled = torch.compile(attend, backend="mps_attention", dynamic=True)
    for keys in (300, 301, 1000, 4, 257):
        with torch.compiler.set_stance("default" if keys == 300 else "fail_on_recompile"):
            assert launches(compiled, 1, keys) == DECODE


def test_short_caches_and_many_queries_take_one_kernel() -> None:
    compiled = torch.compile(attend, backend="mps_attention", dynamic=False)
    assert launches(compiled, 1, 100) == {"forward"}
    assert launches(compiled, 9, 300) == {"forward"}


def test_a_number_of_queries_that_may_be_large_is_not_split() -> None:
    """The memory of the parts is theirs times the queries: a hint of three may be thousands in the next call."""
    compiled = torch.compile(attend, backend="mps_attention", dynamic=True)
    assert launches(compiled, 3, 300) == {"forward"}


def test_a_bound_on_the_number_of_queries_is_enough() -> None:
    compiled = torch.compile(attend, backend="mps_attention")
    assert launches(compiled, 3, 300, most_queries=8) == DECODE
    with torch.compiler.set_stance("fail_on_recompile"):
        assert launches(compiled, 8, 300, most_queries=8) == DECODE
