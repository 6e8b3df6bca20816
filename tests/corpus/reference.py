"""The reference implementation that PyTorch documents for SDPA, in our words, and views that only the softmax needs."""

import math

import torch
import torch.nn.functional as F

from . import matches, trap
from .attentions import B, D, H, S, qkv
from .grouped import grouped


def flat(device, dtype):
    return qkv(device, dtype, (B * H, S, D))


def cross(device, dtype):
    (q,) = qkv(device, dtype, (B, H, 9, D), 1)
    return (q, *qkv(device, dtype, n=2))


# ---- a bias that statements fill
def documented(q, k, v, is_causal=False, enable_gqa=False, diagonal=0, late=False):
    queries, keys = q.size(-2), k.size(-2)
    bias = torch.zeros(queries, keys, dtype=q.dtype, device=q.device)
    seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(diagonal=diagonal)
    if is_causal and not late:
        bias.masked_fill_(seen.logical_not(), float("-inf"))
    if enable_gqa:
        k = k.repeat_interleave(q.size(-3) // k.size(-3), -3)
        v = v.repeat_interleave(q.size(-3) // v.size(-3), -3)
    weights = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.size(-1)))
    weights += bias
    if late:
        bias.masked_fill_(seen.logical_not(), float("-inf"))
        weights = weights + bias[:1, :1]
    return torch.dropout(torch.softmax(weights, dim=-1), 0.0, train=True) @ v


def mask_by_statements(q, k, v):
    hidden = torch.full((q.shape[-2], k.shape[-2]), float("-inf"), dtype=q.dtype)
    hidden.triu_(1)
    return (q @ k.mT * 0.25 + hidden).softmax(-1) @ v


def window_by_two_statements(q, k, v):
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    seen.tril_(0)
    seen.triu_(-3)
    return (q @ k.mT * 0.25).masked_fill(~seen, float("-inf")).softmax(-1) @ v


def mask_written_after_it_was_read(q, k, v):
    mask = torch.zeros(q.shape[-2], k.shape[-2], dtype=q.dtype)
    scores = q @ k.mT * 0.25 + mask
    mask.masked_fill_(torch.ones_like(mask, dtype=torch.bool).triu(1), float("-inf"))
    return (scores.softmax(-1) @ v) + mask[0, 0]


def mask_of_the_first_half_written(q, k, v):
    mask = torch.zeros(q.shape[-2], k.shape[-2], dtype=q.dtype)
    mask[: q.shape[-2] // 2].masked_fill_(
        torch.ones(q.shape[-2] // 2, k.shape[-2], dtype=torch.bool).triu(1), -math.inf
    )
    return (q @ k.mT * 0.25 + mask).softmax(-1) @ v


matches("documented", documented, qkv, scale=0.25)
matches("documented_causal", lambda q, k, v: documented(q, k, v, is_causal=True), qkv, scale=0.25, causal=True)
matches("documented_causal_cross", lambda q, k, v: documented(q, k, v, is_causal=True), cross, scale=0.25, causal=True)
matches("documented_gqa", lambda q, k, v: documented(q, k, v, enable_gqa=True), grouped, scale=0.25, kv_heads=2)
matches("mask_by_statements", mask_by_statements, qkv, scale=0.25, causal=True)
matches("window_by_two_statements", window_by_two_statements, qkv, scale=0.25, band=True)
trap("t_documented_empty_row", lambda q, k, v: documented(q, k, v, is_causal=True, diagonal=-1), qkv, "MASK")
trap("t_mask_written_after_it_was_read", mask_written_after_it_was_read, qkv, "MASK")
trap("t_mask_written_between_two_reads", lambda q, k, v: documented(q, k, v, True, late=True), qkv, None)
trap("t_mask_of_the_first_half_written", mask_of_the_first_half_written, qkv, "MASK")

# ---- views
matches(
    "view_to_rows",
    lambda q, k, v: F.softmax((q @ k.mT / 4).view(-1, S), -1).view(B, H, S, S) @ v,
    qkv,
    scale=0.25,
)
matches(
    "view_to_rows_of_bmm",
    lambda q, k, v: torch.bmm(F.softmax(torch.bmm(q, k.mT).view(-1, k.size(1)), dim=1).view_as(q @ k.mT), v),
    flat,
    scale=1.0,
)
matches(
    "view_to_rows_and_scaled",
    lambda q, k, v: ((q @ k.mT).flatten(0, 2) * 0.25).softmax(1).view(B, H, S, S) @ v,
    qkv,
    scale=0.25,
)
matches(
    "view_twice",
    lambda q, k, v: ((q @ k.mT / 4).flatten(0, 1).flatten(0, 1).softmax(-1).unflatten(0, (B, H, S))) @ v,
    qkv,
    scale=0.25,
)
matches(
    "view_keeps_two_groups",
    lambda q, k, v: (q @ k.mT / 4).flatten(1, 2).softmax(-1).unflatten(1, (H, S)) @ v,
    qkv,
    scale=0.25,
)
trap(
    "t_view_to_rows_softmax_over_rows",
    lambda q, k, v: F.softmax((q @ k.mT / 4).view(-1, S), 0).view(B, H, S, S) @ v,
    qkv,
    "SOFTMAX_AXIS",
)
trap(
    "t_view_to_other_sizes",
    lambda q, k, v: (q @ k.mT / 4).view(B, S, H, S).softmax(-1) @ v.transpose(1, 2)[..., :1, :].expand(B, S, S, D),
    qkv,
    None,
)
trap(
    "t_view_swaps_sizes",
    lambda q, k, v: (q @ k.mT / 4).view(-1, S).softmax(-1).view(H, B, S, S).transpose(0, 1) @ v,
    qkv,
    "LAYOUT",
)
trap(
    "t_view_of_rows_transposed",
    lambda q, k, v: (q @ k.mT / 4).flatten(0, 2).mT.softmax(0).mT.unflatten(0, (B, H, S)) @ v,
    qkv,
    "LAYOUT",
)
trap(
    "t_view_of_rows_masked",
    lambda q, k, v: (q @ k.mT / 4)
    .flatten(0, 2)
    .masked_fill(torch.ones(B * H * S, S).bool().triu(1), -1e30)
    .softmax(-1)
    .unflatten(0, (B, H, S))
    @ v,
    qkv,
    "LAYOUT",
)
trap(
    "t_view_to_the_whole", lambda q, k, v: (q @ k.mT / 4).flatten(2).softmax(-1).unflatten(2, (S, S)) @ v, qkv, "LAYOUT"
)


# ---- products of other forms
def einsum_sublists(q, k, v):
    weights = (torch.einsum(q, [0, 1, 2, 3], k, [0, 1, 4, 3], [0, 1, 2, 4]) * 0.25).softmax(-1)
    return torch.einsum(weights, [0, 1, 2, 4], v, [0, 1, 4, 3], [0, 1, 2, 3])


def einsum_with_a_number(q, k, v):
    weights = torch.einsum("bhid,bhjd,->bhij", q, k, torch.tensor(0.25, dtype=q.dtype)).softmax(-1)
    return torch.einsum("bhij,bhjd->bhid", weights, v)


def einsum_with_head_scales(q, k, v):
    scales = torch.linspace(0.5, 1.5, H, dtype=q.dtype)
    return torch.einsum("bhid,bhjd,h->bhij", q, k, scales).softmax(-1) @ v


def scaled_output_product(q, k, v):
    weights = (torch.bmm(q, k.mT) * 0.25).softmax(-1)
    return torch.baddbmm(v.new_zeros(1), weights, v, beta=0, alpha=2.0)


def output_product_that_adds(q, k, v):
    return torch.baddbmm(v, (torch.bmm(q, k.mT) * 0.25).softmax(-1), v)


matches("einsum_sublists", einsum_sublists, qkv, scale=0.25)
matches("einsum_with_a_number", einsum_with_a_number, qkv, scale_on_q=True)
matches(
    "output_product_of_baddbmm",
    lambda q, k, v: torch.baddbmm(v.new_zeros(1), (torch.bmm(q, k.mT) * 0.25).softmax(-1), v, beta=0),
    flat,
    scale=0.25,
)
trap("t_einsum_with_head_scales", einsum_with_head_scales, qkv, "PRODUCT")
trap("t_output_product_scaled", scaled_output_product, flat, "WEIGHTS_MODIFIED")
trap("t_output_product_that_adds", output_product_that_adds, flat, "PRODUCT")

# ---- maxima and sums, expanded
matches(
    "shift_expanded",
    lambda q, k, v: (lambda s: s - s.amax(-1, True).expand_as(s))(q @ k.mT * 0.25).softmax(-1) @ v,
    qkv,
    scale=0.25,
    source="Reformer-like",
)
matches(
    "sum_expanded",
    lambda q, k, v: (lambda e: e / e.sum(-1, True).expand_as(e))((q @ k.mT * 0.25).exp()) @ v,
    qkv,
    scale=0.25,
)
matches(
    "sum_to_the_power",
    lambda q, k, v: (lambda e: (e @ v) * e.sum(-1, True).pow(-1))((q @ k.mT * 0.25).exp()),
    qkv,
    scale=0.25,
)
trap(
    "t_sum_to_another_power",
    lambda q, k, v: (lambda e: (e @ v) * e.sum(-1, True).pow(-0.5))((q @ k.mT * 0.25).exp()),
    qkv,
    None,
)
trap(
    "t_shift_expanded_over_queries",
    lambda q, k, v: (lambda s: s - s.amax(-2, True).expand_as(s))(q @ k.mT * 0.25).softmax(-1) @ v,
    qkv,
    "SCORE_MODIFIED",
)


@torch.no_grad()
def all_in_place(q, k, v):
    scores = (q @ k.mT).mul_(0.25)
    scores.sub_(scores.amax(-1, keepdim=True))
    weights = scores.exp_()
    return weights.div_(weights.sum(-1, keepdim=True)) @ v


matches("all_in_place", all_in_place, qkv, scale=0.25)


def channel_attention(q, k, v):
    """Channels attend to those that are least like them."""
    energy = torch.bmm(q, k.permute(0, 2, 1))
    energy = torch.max(energy, -1, keepdim=True)[0].expand_as(energy) - energy
    return torch.bmm(F.softmax(energy, dim=-1), v)


def channel_attention_by_queries(q, k, v):
    energy = torch.bmm(q, k.permute(0, 2, 1))
    energy = torch.max(energy, 1, keepdim=True)[0].expand_as(energy) - energy
    return torch.bmm(F.softmax(energy, dim=-1), v)


matches("channel_attention", channel_attention, flat, scale=-1.0, source="DANet")
trap("t_channel_attention_by_queries", channel_attention_by_queries, flat, "SCORE_MODIFIED")
