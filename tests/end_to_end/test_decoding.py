"""Decode loops in plain PyTorch: a prefill, then token by token over a cache of grouped keys and values."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import inductor_mps_attention as ima
from tests.support import budgets

HEADS, KV_HEADS, HEAD_DIM, WIDTH = 4, 2, 16, 32
PROMPT, TOKENS, LONGEST = 9, 5, 32
Cache = tuple[Tensor, Tensor]


class Decoder(nn.Module):
    """Projections of grouped-query attention; how the cache is used is for subclasses to say."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(WIDTH, HEADS * HEAD_DIM), nn.Linear(WIDTH, 2 * KV_HEADS * HEAD_DIM)
        self.out = nn.Linear(HEADS * HEAD_DIM, WIDTH)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q = self.q(x).unflatten(2, (HEADS, HEAD_DIM)).transpose(1, 2)
        k, v = self.kv(x).unflatten(2, (2, KV_HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def joined(self, attended: Tensor) -> Tensor:
        return self.out(attended.transpose(1, 2).flatten(2))


class Growing(Decoder):
    """The cache is what came before, by `cat`."""

    def forward(self, x: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        q, k, v = self.project(x)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        return self.joined(self.attend(q, k, v, cache is None)), (k, v)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, is_first: bool) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_first, enable_gqa=True)


class GrowingByHand(Growing):
    """Heads repeated, scores written out, a mask that ends at the last key."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, is_first: bool) -> Tensor:
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        scores = q @ k.mT / HEAD_DIM**0.5
        queries, keys = scores.shape[-2:]
        seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
        return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v


class Static(Decoder):
    """Buffers of the longest length, written in place; the part that is filled is sliced off."""

    def forward(self, x: Tensor, cache: Cache, start: int) -> Tensor:
        q, k, v = self.project(x)
        end = start + x.shape[1]
        for whole, new in zip(cache, (k, v), strict=True):
            whole[:, :, start:end] = new
        keys, values = (whole[:, :, :end] for whole in cache)
        is_prompt = x.shape[1] > 1  # `start == 0` would be symbolic, which Dynamo does not take for is_causal
        return self.joined(F.scaled_dot_product_attention(q, keys, values, is_causal=is_prompt, enable_gqa=True))


class StaticMasked(Decoder):
    """Buffers of the longest length, always read whole; what is not filled is masked by the positions."""

    def forward(self, x: Tensor, cache: Cache, positions: Tensor) -> Tensor:
        q, k, v = self.project(x)
        for whole, new in zip(cache, (k, v), strict=True):
            whole.index_copy_(2, positions, new)
        seen = torch.arange(LONGEST, device=x.device)[None] <= positions[:, None]
        return self.joined(F.scaled_dot_product_attention(q, *cache, attn_mask=seen, enable_gqa=True))


def steps() -> list[Tensor]:
    return [
        torch.randn(2, PROMPT, WIDTH, device="mps"),
        *(torch.randn(2, 1, WIDTH, device="mps") for _ in range(TOKENS)),
    ]


def buffers() -> Cache:
    return tuple(torch.zeros(2, KV_HEADS, LONGEST, HEAD_DIM, device="mps") for _ in "kv")


def check(got: Tensor, want: Tensor) -> None:
    budgets.check("out", got, want, budgets.BACKWARD[torch.float32])


@pytest.mark.parametrize(("kind", "dynamic"), [(Growing, None), (GrowingByHand, True)], ids=["automatic", "dynamic"])
def test_a_growing_cache_needs_three_graphs_for_any_length(kind: type[Growing], dynamic: bool | None) -> None:
    """Prefill, the first token, and all others."""
    model = kind().to("mps").eval()
    compiled = torch.compile(model, backend="mps_attention", dynamic=dynamic)
    cache = expected = None
    with torch.no_grad():
        for x in steps():
            out, cache = compiled(x, cache)
            want, expected = model(x, expected)
            check(out, want)
    assert ima.stats() == {"fused": 3, "declined": {}, "launches": {"forward": 1 + TOKENS}}


def test_a_static_cache_that_is_sliced() -> None:
    model = Static().to("mps").eval()
    compiled = torch.compile(model, backend="mps_attention")
    cache, expected, start = buffers(), buffers(), 0
    with torch.no_grad():
        for x in steps():
            check(compiled(x, cache, start), model(x, expected, start))
            start += x.shape[1]
    check(cache[0], expected[0])
    assert ima.stats()["declined"] == {}
    assert ima.stats()["launches"] == {"forward": 1 + TOKENS}


@pytest.mark.parametrize("key_padding", [False, True])
def test_a_static_cache_that_is_masked_by_position_is_fused_with_key_padding(key_padding: bool) -> None:
    """One query sees keys by a mask of keys alone; a prompt's mask is no band, as its start is data."""
    model = StaticMasked().to("mps").eval()
    compiled = torch.compile(model, backend="mps_attention", options={"attention.key_padding": key_padding})
    cache, expected, start = buffers(), buffers(), 0
    with torch.no_grad():
        for x in steps():
            positions = torch.arange(start, start + x.shape[1], device="mps")
            check(compiled(x, cache, positions), model(x, expected, positions))
            start += x.shape[1]
    assert ima.stats()["launches"] == ({"forward": TOKENS} if key_padding else {})
    assert ima.stats()["declined"] == {"MASK": 1 if key_padding else 2}
