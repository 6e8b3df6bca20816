"""Masks that the code builds from constants and sizes: bands that must be seen, and near misses that must not."""

import math
from typing import Any

import torch
import torch.nn.functional as F

from . import case
from .attentions import D, S, qkv

A = torch.arange


def cross(dev: Any, dt: Any, queries: int = 9) -> tuple[torch.Tensor, ...]:
    (q,) = qkv(dev, dt, (2, 4, queries, D), 1)
    return (q, *qkv(dev, dt, n=2))


def softmax_of(scores: Any) -> Any:
    return lambda q, k, v: scores(q, k).softmax(-1) @ v


def base(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.mT * 0.25


def ones(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)


@case(True, "masked_fill(~tril, -inf)", scale=0.25, causal=True)
def band_tril_masked_fill(dev, dt):
    return softmax_of(lambda q, k: base(q, k).masked_fill(~ones(q, k).tril(), -math.inf)), qkv(dev, dt)


@case(True, "minGPT with an in-graph tril: masked_fill(tril == 0)", scale=0.25, causal=True)
def band_tril_equals_zero(dev, dt):
    def scores(q, k):
        mask = torch.tril(torch.ones(q.shape[-2], k.shape[-2], device=q.device)).view(1, 1, q.shape[-2], k.shape[-2])
        return base(q, k).masked_fill(mask == 0, float("-inf"))

    return softmax_of(scores), qkv(dev, dt)


@case(True, "masked_fill_ as a statement", scale=0.25, causal=True)
def band_masked_fill_statement(dev, dt):
    def f(q, k, v):
        scores = base(q, k)
        scores.masked_fill_(ones(q, k).triu(1), -math.inf)
        return scores.softmax(-1) @ v

    return f, qkv(dev, dt)


@case(True, "+ triu(full(-inf), 1)", scale=0.25, causal=True)
def band_additive_triu(dev, dt):
    def scores(q, k):
        return base(q, k) + torch.triu(torch.full((q.shape[-2], k.shape[-2]), -math.inf, device=q.device), 1)

    return softmax_of(scores), qkv(dev, dt)


@case(True, "mask + scores, commuted", scale=0.25, causal=True)
def band_commuted(dev, dt):
    def scores(q, k):
        return torch.zeros(q.shape[-2], k.shape[-2]).masked_fill(ones(q, k).triu(1), -math.inf) + base(q, k)

    return softmax_of(scores), qkv(dev, dt)


@case(True, "where(arange <= arange, scores, finfo.min)", scale=0.25, causal=True)
def band_where(dev, dt):
    def scores(q, k):
        keep = A(k.shape[-2])[None] <= A(q.shape[-2])[:, None]
        return torch.where(keep, base(q, k), torch.finfo(q.dtype).min)

    return softmax_of(scores), qkv(dev, dt)


@case(True, "where(hidden, -inf, scores)", scale=0.25, causal=True)
def band_where_swapped(dev, dt):
    def scores(q, k):
        return torch.where(A(k.shape[-2]) > A(q.shape[-2])[:, None], -math.inf, base(q, k))

    return softmax_of(scores), qkv(dev, dt)


@case(True, "x-transformers: triu of ones, masked_fill(finfo.min)", source="x-transformers", scale=0.25, causal=True)
def band_triu_min(dev, dt):
    def scores(q, k):
        mask = torch.ones((q.shape[-2], k.shape[-2]), dtype=torch.bool).triu(k.shape[-2] - q.shape[-2] + 1)
        return base(q, k).masked_fill(mask, -torch.finfo(q.dtype).max)

    return softmax_of(scores), qkv(dev, dt)


@case(True, "sliding causal window", scale=0.25, band=True)
def band_window(dev, dt):
    def scores(q, k):
        i, j = A(q.shape[-2])[:, None], A(k.shape[-2])
        return base(q, k).masked_fill(~((j <= i) & (j > i - 4)), -math.inf)

    return softmax_of(scores), qkv(dev, dt)


@case(True, "symmetric window", source="ModernBERT", scale=0.25, band=True)
def band_symmetric(dev, dt):
    def scores(q, k):
        far = (A(q.shape[-2])[:, None] - A(k.shape[-2])).abs() > 4
        return base(q, k).masked_fill(far, -math.inf)

    return softmax_of(scores), qkv(dev, dt)


@case(True, "SDPA with an in-graph bool tril", causal=True)
def band_sdpa_bool(dev, dt):
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=ones(q, k).tril())), qkv(dev, dt)


@case(True, "SDPA with an in-graph float mask of -inf", causal=True)
def band_sdpa_float(dev, dt):
    def f(q, k, v):
        # Of q's dtype: torch's own kernel misreads a float32 mask beside float64.
        mask = torch.zeros(q.shape[-2], k.shape[-2], dtype=q.dtype).masked_fill(ones(q, k).triu(1), -math.inf)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return f, qkv(dev, dt)


@case(True, "SDPA, strictly causal: row 0 sees no key and is zero", band=True)
def band_sdpa_empty_row(dev, dt):
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=ones(q, k).tril(-1))), qkv(dev, dt)


@case(True, "SDPA, bottom-right causal, more keys than queries", band=True)
def band_bottom_right(dev, dt):
    def f(q, k, v):
        mask = ones(q, k).tril(k.shape[-2] - q.shape[-2])
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return f, cross(dev, dt)


@case(True, "an all-true mask is no mask")
def band_all_true(dev, dt):
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=ones(q, k))), qkv(dev, dt)


@case(True, "BERT's extended mask of ones built in the graph", scale=0.25)
def band_extended_ones(dev, dt):
    def scores(q, k):
        keep = torch.ones(q.shape[0], k.shape[-2])[:, None, None, :]
        return base(q, k) + (1.0 - keep) * torch.finfo(torch.float32).min

    return softmax_of(scores), qkv(dev, dt)


@case(True, "positions from cumsum(ones) - 1", scale=0.25, causal=True)
def band_cumsum(dev, dt):
    def scores(q, k):
        position = torch.ones(q.shape[0], k.shape[-2], dtype=torch.long).cumsum(-1) - 1
        keep = position[:, None, None, :] <= A(q.shape[-2])[None, None, :, None]
        return base(q, k).masked_fill(~keep, -math.inf)

    return softmax_of(scores), qkv(dev, dt)


@case(True, "two layers that share one mask", causal=True, n=2)
def band_shared(dev, dt):
    def f(q, k, v):
        mask = ones(q, k).tril()
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return F.scaled_dot_product_attention(out, k, v, attn_mask=mask)

    return f, qkv(dev, dt)


# ---- traps


@case(False, "hand-written strictly causal: row 0 is NaN in eager")
def t_band_empty_row(dev, dt):
    return softmax_of(lambda q, k: base(q, k).masked_fill(~ones(q, k).tril(-1), -math.inf)), qkv(dev, dt)


@case(False, "hand-written bottom-right causal with more queries than keys: empty rows")
def t_band_bottom_right_empty(dev, dt):
    def scores(q, k):
        return base(q, k).masked_fill(~ones(q, k).tril(k.shape[-2] - q.shape[-2]), -math.inf)

    return softmax_of(scores), cross(dev, dt, S + 5)


@case(False, "finfo.min on an empty row is a mean of v")
def t_band_mean_row(dev, dt):
    def scores(q, k):
        return torch.where(ones(q, k).tril(-1), base(q, k), torch.finfo(q.dtype).min)

    return softmax_of(scores), qkv(dev, dt)


@case(False, "a fill of -1e4 does not hide large scores")
def t_band_weak_fill(dev, dt):
    return softmax_of(lambda q, k: base(q, k).masked_fill(~ones(q, k).tril(), -1e4)), qkv(dev, dt)


@case(False, "the mask is scaled with the scores by a negative number: -inf becomes inf")
def t_band_negative_scale_after(dev, dt):
    return softmax_of(lambda q, k: (q @ k.mT).masked_fill(~ones(q, k).tril(), -math.inf) * -0.25), qkv(dev, dt)


@case(False, "setitem on the mask: an ancestor walk misses it")
def t_band_setitem(dev, dt):
    def f(q, k, v):
        mask = ones(q, k).tril()
        mask[:, 0] = False
        mask[0, 0] = True
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return f, qkv(dev, dt)


@case(False, "a view of the mask is written")
def t_band_view_written(dev, dt):
    def f(q, k, v):
        mask = ones(q, k).tril()
        mask[:1].fill_(True)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return f, qkv(dev, dt)


@case(False, "prefix LM")
def t_band_prefix(dev, dt):
    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=ones(q, k).tril() | (A(k.shape[-2]) < 3))

    return f, qkv(dev, dt)


@case(False, "chunked attention")
def t_band_chunked(dev, dt):
    def f(q, k, v):
        mask = (A(k.shape[-2]) // 4) == (A(q.shape[-2]) // 4)[:, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return f, qkv(dev, dt)


@case(False, "dilated")
def t_band_dilated(dev, dt):
    def f(q, k, v):
        mask = (A(q.shape[-2])[:, None] - A(k.shape[-2])) % 2 == 0
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return f, qkv(dev, dt)


@case(False, "ALiBi built in the graph")
def t_band_alibi(dev, dt):
    def scores(q, k):
        return base(q, k) + (A(k.shape[-2]) - A(q.shape[-2])[:, None]).float() * 0.1

    return softmax_of(scores), qkv(dev, dt)


@case(False, "a bool tensor added to the scores is a bias of 1")
def t_band_bool_added(dev, dt):
    return softmax_of(lambda q, k: base(q, k) + ones(q, k).tril()), qkv(dev, dt)


@case(False, "the sense of masked_fill inverted: hides what causal keeps")
def t_band_inverted(dev, dt):
    return softmax_of(lambda q, k: base(q, k).masked_fill(ones(q, k).tril(), -math.inf)), qkv(dev, dt)


@case(False, "a mask that differs by batch")
def t_band_per_batch(dev, dt):
    def f(q, k, v):
        mask = A(k.shape[-2]) <= A(q.shape[-2])[:, None] + A(q.shape[0])[:, None, None, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return f, qkv(dev, dt)


@case(False, "causal and key padding from an input", source="transformers")
def t_band_and_padding(dev, dt):
    def f(q, k, v, keep):
        mask = ones(q, k).tril() & keep[:, None, None, :]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return f, (*qkv(dev, dt), torch.ones(2, S, dtype=torch.bool))


@case(False, "a causal mask and a random one")
def t_band_and_input(dev, dt):
    def f(q, k, v, m):
        return (base(q, k).masked_fill(~ones(q, k).tril(), -math.inf) + m).softmax(-1) @ v

    return f, (*qkv(dev, dt), torch.randn(S, S))


@case(False, "a flipped tril")
def t_band_flipped(dev, dt):
    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=ones(q, k).tril().flip(-1))

    return f, qkv(dev, dt)


@case(False, "a steeper diagonal")
def t_band_steep(dev, dt):
    def f(q, k, v):
        mask = A(k.shape[-2]) <= 2 * A(q.shape[-2])[:, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return f, qkv(dev, dt)
