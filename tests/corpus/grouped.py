"""Fewer heads of keys than of queries, by every means; and heads in other places than dim 1."""

import torch
import torch.nn.functional as F

from . import matches
from .attentions import B, D, H, S, qkv

KV = 2
GROUP = H // KV


def grouped(device, dtype):
    (q,) = qkv(device, dtype, n=1)
    return (q, *qkv(device, dtype, (B, KV, S, D), 2))


def one_head(device, dtype):
    (q,) = qkv(device, dtype, n=1)
    return (q, *qkv(device, dtype, (B, 1, S, D), 2))


def no_head(device, dtype):
    (q,) = qkv(device, dtype, n=1)
    return (q, *qkv(device, dtype, (B, S, D), 2))


def seq_major(device, dtype):
    (q,) = qkv(device, dtype, (B, S, H, D), 1)
    return (q, *qkv(device, dtype, (B, S, KV, D), 2))


def repeated(name, repeat, inputs=grouped, **facts):
    facts = {"scale": 0.25, "kv_heads": KV} | facts
    matches(f"gqa_{name}", lambda q, k, v: (q @ repeat(k).mT * 0.25).softmax(-1) @ repeat(v), inputs, **facts)


repeated("interleave_function", lambda t: torch.repeat_interleave(t, GROUP, dim=1))
repeated("interleave_keywords", lambda t: t.repeat_interleave(repeats=GROUP, dim=-3))
repeated("interleave_of_a_shape", lambda t: t.repeat_interleave(H // t.shape[1], dim=1))
repeated("expand_flatten", lambda t: t.unsqueeze(2).expand(-1, -1, GROUP, -1, -1).flatten(1, 2))
repeated("expand_reshape", lambda t: t[:, :, None].expand(B, KV, GROUP, S, D).reshape(B, H, S, D))
repeated(
    "expand_sizes_of_the_tensor",
    lambda t: (
        t[:, :, None, :, :]
        .expand(t.size(0), t.size(1), GROUP, t.size(2), t.size(3))
        .reshape(t.size(0), -1, t.size(2), t.size(3))
    ),
)
repeated("expand_contiguous_view", lambda t: t.unsqueeze(2).expand(B, KV, GROUP, S, D).contiguous().view(B, H, S, D))
repeated("broadcast_to", lambda t: torch.broadcast_to(t[:, :, None], (B, KV, GROUP, S, D)).reshape(B, H, S, D))
repeated("repeat_of_a_new_axis", lambda t: t.unsqueeze(2).repeat(1, 1, GROUP, 1, 1).view(B, H, S, D))
repeated(
    "repeat_of_a_new_axis_flattened",
    lambda t: t[:, :, None].repeat(1, 1, GROUP, 1, 1).flatten(1, 2),
    source="many ports",
)
repeated("tile_of_a_new_axis", lambda t: t.unsqueeze(2).tile(1, 1, GROUP, 1, 1).flatten(1, 2), tier="stretch")
repeated("stack_flatten", lambda t: torch.stack([t] * GROUP, dim=2).flatten(1, 2), tier="stretch")
repeated("expand_of_one_head", lambda t: t.expand(-1, H, -1, -1), one_head, kv_heads=None)
repeated("repeat_of_one_head", lambda t: t.repeat(1, H, 1, 1), one_head, kv_heads=None)
repeated("interleave_of_one_head", lambda t: t.repeat_interleave(H, 1), one_head, kv_heads=1)
repeated("tiled_heads", lambda t: t.repeat(1, GROUP, 1, 1), kv_heads=H)
repeated("concatenated_heads", lambda t: torch.cat([t] * GROUP, dim=1), kv_heads=H)
repeated("indexed_heads", lambda t: t.index_select(1, torch.tensor([0, 0, 1, 1], device=t.device)), kv_heads=H)


def head_axis_2(repeat):
    def function(q, k, v):
        q, k, v = q.transpose(1, 2), repeat(k).transpose(1, 2), repeat(v).transpose(1, 2)
        return ((q @ k.mT * 0.25).softmax(-1) @ v).transpose(1, 2).reshape(B, -1, H * D)

    return function


matches(
    "gqa_heads_in_dim_2_interleave",
    head_axis_2(lambda t: t.repeat_interleave(GROUP, dim=2)),
    seq_major,
    scale=0.25,
    kv_heads=KV,
)
matches(
    "gqa_heads_in_dim_2_expand",
    head_axis_2(lambda t: t[:, :, :, None].expand(B, S, KV, GROUP, D).reshape(B, S, H, D)),
    seq_major,
    scale=0.25,
    kv_heads=KV,
)
matches(
    "gqa_heads_in_dim_2_einsum",
    lambda q, k, v: torch.einsum(
        "bhij,bjhd->bihd",
        (torch.einsum("bihd,bjhd->bhij", q, k.repeat_interleave(GROUP, 2)) * 0.25).softmax(-1),
        v.repeat_interleave(GROUP, 2),
    ),
    seq_major,
    scale=0.25,
    kv_heads=KV,
)
matches(
    "gqa_sdpa_interleave",
    lambda q, k, v: F.scaled_dot_product_attention(q, k.repeat_interleave(GROUP, 1), v.repeat_interleave(GROUP, 1)),
    grouped,
    kv_heads=KV,
)
matches(
    "gqa_sdpa_causal",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
    grouped,
    kv_heads=KV,
    causal=True,
)
matches(
    "gqa_sdpa_one_head", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), one_head, kv_heads=1
)
matches(
    "gqa_sdpa_same_heads", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), qkv, kv_heads=H
)


def five_dims(q, k, v):
    q = q.unflatten(1, (KV, GROUP))
    return ((q @ k.unsqueeze(2).mT * 0.25).softmax(-1) @ v[:, :, None]).flatten(1, 2)


def five_dims_einsum(q, k, v):
    q = q.view(B, KV, GROUP, S, D)
    weights = (torch.einsum("bgrid,bgjd->bgrij", q, k) * 0.25).softmax(-1)
    return torch.einsum("bgrij,bgjd->bgrid", weights, v).reshape(B, H, S, D)


def five_dims_seq_major(q, k, v):
    q = q.view(B, S, KV, GROUP, D)
    weights = torch.softmax(torch.einsum("bqghd,bkgd->bghqk", q, k) * 0.25, dim=-1)
    return torch.einsum("bghqk,bkgd->bqghd", weights, v).reshape(B, S, H, D)


def group_axis_first(q, k, v):
    """Query head r * KV + g reads key head g: as tiling does, but with the axes apart."""
    q = q.view(B, GROUP, KV, S, D)
    weights = (torch.einsum("brgid,bgjd->brgij", q, k) * 0.25).softmax(-1)
    return torch.einsum("brgij,bgjd->brgid", weights, v).reshape(B, H, S, D)


def longer_queries(q, k, v):
    """The group's heads stand below each other as more queries."""
    rows = q.reshape(B, KV, GROUP * S, D)
    return ((rows @ k.mT * 0.25).softmax(-1) @ v).view(B, H, S, D)


matches("gqa_5_dims_unflatten", five_dims, grouped, scale=0.25, kv_heads=KV)
matches("gqa_5_dims_einsum", five_dims_einsum, grouped, scale=0.25, kv_heads=KV)
matches(
    "gqa_5_dims_seq_major", five_dims_seq_major, seq_major, scale=0.25, kv_heads=KV, source="flash-attn's reference"
)
matches("gqa_group_axis_first", group_axis_first, grouped, scale=0.25)
matches("gqa_longer_queries", longer_queries, grouped, scale=0.25)
matches(
    "mqa_einsum_without_head",
    lambda q, k, v: torch.einsum("bhij,bjd->bhid", (torch.einsum("bhid,bjd->bhij", q, k) * 0.25).softmax(-1), v),
    no_head,
    scale=0.25,
    source="PaLM-pytorch",
)
matches("mqa_unsqueezed", lambda q, k, v: (q @ k[:, None].mT * 0.25).softmax(-1) @ v.unsqueeze(1), no_head, scale=0.25)
matches(
    "mqa_broadcast_sdpa",
    lambda q, k, v: F.scaled_dot_product_attention(q, k.expand(B, H, S, D), v.expand(B, H, S, D)),
    one_head,
)


def bigcode(q, k, v):
    """Heads of one token stand below each other; the scores are seen by head for the softmax."""
    rows = q.transpose(1, 2).reshape(B, S * H, D)
    scores = torch.baddbmm(torch.empty(B, S * H, S, dtype=q.dtype, device=q.device), rows, k.mT, beta=0, alpha=0.25)
    weights = scores.view(B, S, H, S).softmax(-1)
    return torch.bmm(weights.view(B, S * H, S), v).view(B, S, H * D)


matches("mqa_bigcode", bigcode, no_head, scale=0.25, source="GPTBigCode of transformers")


# ---- heads one by one
def loop_over_heads(q, k, v):
    return torch.stack([(q[:, h] @ k[:, h].mT * 0.25).softmax(-1) @ v[:, h] for h in range(H)], 1)


def loop_over_chunks(q, k, v):
    heads = zip(q.chunk(H, 1), k.chunk(H, 1), v.chunk(H, 1), strict=True)
    return torch.cat([(a @ b.transpose(-1, -2) / 4).softmax(-1) @ c for a, b, c in heads], dim=1)


def loop_over_unbound(q, k, v):
    return torch.stack(
        [F.scaled_dot_product_attention(*heads) for heads in zip(q.unbind(1), k.unbind(1), v.unbind(1), strict=True)], 1
    )


def loop_over_the_batch(q, k, v):
    return torch.stack([F.softmax(torch.bmm(a, b.mT) * 0.25, -1).bmm(c) for a, b, c in zip(q, k, v, strict=True)])


matches("heads_in_a_loop", loop_over_heads, qkv, scale=0.25, n=H)
matches("heads_in_chunks", loop_over_chunks, qkv, scale=0.25, n=H)
matches("heads_unbound", loop_over_unbound, qkv, n=H)
matches("batch_in_a_loop", loop_over_the_batch, qkv, scale=0.25, n=B)
