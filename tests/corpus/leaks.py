"""Inner values that others read or write, operands and modes that change, and operands that no kernel takes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import case, matches, trap
from .attentions import B, D, H, S, qkv

KV = 2


def scores(q, k):
    return q @ k.mT * 0.25


# ---- read elsewhere
def reading(leak):
    def function(q, k, v):
        s = scores(q, k)
        w = s.softmax(-1)
        return leak(s, w, w @ v)

    return function


for name, leak in {
    "weights_averaged": lambda s, w, o: (o, w.mean(1)),
    "weights_detached": lambda s, w, o: (o, w.detach()),
    "weights_in_a_dict": lambda s, w, o: {"out": o, "attn": w},
    "weights_argmax": lambda s, w, o: (o, w.argmax(-1)),
    "scores_maximum": lambda s, w, o: o * s.max(),
    "scores_added_to_the_output": lambda s, w, o: o + s.mean(),
    "scores_regularised": lambda s, w, o: (o, s.square().mean()),
    "entropy": lambda s, w, o: (o, -(w * s.log_softmax(-1)).sum(-1)),
    "view_of_the_scores": lambda s, w, o: (o, s[..., :1]),
}.items():
    trap(f"t_read_{name}", reading(leak), qkv, "INNER_VALUE_USED")

trap(
    "t_read_raw_product", lambda q, k, v: (lambda s: ((s * 0.25).softmax(-1) @ v, s))(q @ k.mT), qkv, "INNER_VALUE_USED"
)
trap(
    "t_read_logsumexp",
    lambda q, k, v: (lambda s: (s.softmax(-1) @ v, s.logsumexp(-1)))(scores(q, k)),
    qkv,
    "INNER_VALUE_USED",
    source="ring attention",
)
trap(
    "t_read_exponentials",
    lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True) @ v, e))(scores(q, k).exp()),
    qkv,
    None,
)
trap(
    "t_read_the_sum",
    lambda q, k, v: (lambda e, z: ((e / z) @ v, z))(*(lambda e: (e, e.sum(-1, keepdim=True)))(scores(q, k).exp())),
    qkv,
    "INNER_VALUE_USED",
)
trap(
    "t_read_the_maximum",
    lambda q, k, v: (lambda s, m: ((s - m).softmax(-1) @ v, m))(
        *(lambda s: (s, s.amax(-1, keepdim=True)))(scores(q, k))
    ),
    qkv,
    "INNER_VALUE_USED",
)
trap(
    "t_read_undivided_output",
    lambda q, k, v: (lambda e: (lambda o: (o / e.sum(-1, keepdim=True), o))(e @ v))(scores(q, k).exp()),
    qkv,
    "INNER_VALUE_USED",
)
trap(
    "t_read_weights_by_a_second_product",
    lambda q, k, v: (lambda w: w @ v + w @ k)(scores(q, k).softmax(-1)),
    qkv,
    "INNER_VALUE_USED",
)
trap(
    "t_weights_stored_on_the_module",
    lambda q, k, v: (lambda w: torch.cat([w @ v, w], -1))(scores(q, k).softmax(-1)),
    qkv,
    "INNER_VALUE_USED",
)
trap(
    "t_read_after_dropout",
    lambda q, k, v: (lambda w: (w @ v, w.sum()))(F.dropout(scores(q, k).softmax(-1), 0.5, False)),
    qkv,
    "INNER_VALUE_USED",
)


# ---- written
def writes(name, function, because="MUTATION", **facts):
    trap(f"t_write_{name}", function, qkv, because, **facts)


def scores_written(write):
    def function(q, k, v):
        s = scores(q, k)
        write(s)
        return s.softmax(-1) @ v

    return function


def operand_written(write):
    def function(q, k, v):
        q, k, v = q * 1, k * 1, v * 1
        w = (q.detach() @ k.detach().mT * 0.25).softmax(-1)
        write(q, k, v)
        return w @ v, q.sum() + k.sum()

    return function


writes("scores_fill_diagonal", scores_written(lambda s: s.diagonal(dim1=-2, dim2=-1).fill_(-1.0)))
writes("scores_slice", scores_written(lambda s: s[:, :, :, 0].zero_()))
writes("scores_copy", scores_written(lambda s: s.copy_(torch.linspace(0, 1, S))), None)
writes("scores_clamp", scores_written(lambda s: s.clamp_(max=0.2)), None)
writes("scores_setitem_mask", scores_written(lambda s: s.__setitem__(s > 0.5, 0.5)), None)
writes("scores_index_fill", scores_written(lambda s: s.index_fill_(-1, torch.tensor([0]), -5.0)), None)
writes("scores_transposed_view", scores_written(lambda s: s.mT.add_(torch.arange(float(S), dtype=s.dtype))), None)
writes("scores_narrow", scores_written(lambda s: s.narrow(-1, 0, 5).mul_(2.0)))
writes("v_between", operand_written(lambda q, k, v: v.mul_(2.0)))
writes("v_through_a_view", operand_written(lambda q, k, v: v.view(B, H, -1)[..., :3].add_(1.0)))
writes("v_setitem", operand_written(lambda q, k, v: v.__setitem__((slice(None), 0), 1.0)))
writes("q_after_its_product", operand_written(lambda q, k, v: q.add_(1.0)))
writes("k_relu_in_place", operand_written(lambda q, k, v: F.relu(k, inplace=True)))
writes("v_copied_over", operand_written(lambda q, k, v: v.copy_(k)))
writes("v_foreach", operand_written(lambda q, k, v: torch._foreach_mul_([v, k], 3.0)))
writes("v_out_argument", torch.no_grad()(operand_written(lambda q, k, v: torch.mul(k, 2.0, out=v))))


def packed_written(q, k, v):
    """q, k and v are views of one tensor, which is written between the products."""
    packed = torch.stack([q, k, v])
    q, k, v = packed.unbind(0)
    w = (q.detach() @ k.detach().mT * 0.25).softmax(-1)
    packed.mul_(2.0)
    return w @ packed[2]


def cache_written(q, k, v):
    cache = k.new_zeros(B, H, S + 4, D)
    cache[:, :, :S] = k
    s = scores(q, cache[:, :, :S])
    cache[:, :, 0] = 1.0
    return s.softmax(-1) @ cache[:, :, :S]


writes("packed_tensor", packed_written)
writes("cache_between", torch.no_grad()(cache_written))


def cache_filled_before(q, k, v):
    keys, values = (t.new_zeros(B, H, S + 8, D) for t in (k, v))
    keys[:, :, :S], values[:, :, :S] = k, v
    return scores(q, keys[:, :, :S]).softmax(-1) @ values[:, :, :S]


def scratch_written(q, k, v):
    log = torch.zeros(3)
    s = scores(q, k)
    log[0] = 1.0
    return s.softmax(-1) @ v + log.sum()


def input_written_before(q, k, v):
    q = q.clone().mul_(2.0)
    k = k.clone()
    k += 1.0
    return scores(q, k).softmax(-1) @ v


def input_written_after(q, k, v):
    k = k.clone()
    out = scores(q, k.detach()).softmax(-1) @ v
    k.zero_()
    return out + k.sum()


matches("write_cache_before", cache_filled_before, qkv, scale=0.25)
matches("write_scratch_between", scratch_written, qkv, scale=0.25)
matches("write_before", input_written_before, qkv, scale=0.25)
matches("write_after", torch.no_grad()(input_written_after), qkv, scale=0.25)


# ---- modes
def graph_free_values(q, k, v):
    s = scores(q, k)
    with torch.no_grad():
        w = s.softmax(-1)
    return w @ v


def autocast_scores(q, k, v):
    with torch.autocast("cpu", torch.bfloat16):
        s = scores(q, k)
    return s.float().softmax(-1) @ v


trap("t_mode_no_grad_softmax", graph_free_values, qkv, None, grad_only=True)
trap("t_mode_detached_scores", lambda q, k, v: scores(q, k).detach().softmax(-1) @ v, qkv, None, grad_only=True)
trap("t_mode_autocast_scores", autocast_scores, qkv, None, rounds=True)
trap(
    "t_mode_functorch",
    lambda q, k, v: torch.func.grad(lambda q: (scores(q, k).softmax(-1) @ v).sum())(q),
    qkv,
    "REGION",
    dynamo_only=True,
)
matches("mode_all_no_grad", torch.no_grad()(lambda q, k, v: scores(q, k).softmax(-1) @ v), qkv, scale=0.25)
matches(
    "mode_inference",
    torch.inference_mode()(lambda q, k, v: scores(q, k).softmax(-1) @ v),
    qkv,
    dynamo_only=True,
    scale=0.25,
)
matches("mode_detached_operands", lambda q, k, v: scores(q.detach(), k.detach()).softmax(-1) @ v, qkv, scale=0.25)


# ---- operands
def grouped(device, dtype):
    (q,) = qkv(device, dtype, n=1)
    return (q, *qkv(device, dtype, (B, KV, S, D), 2))


trap("t_scale_per_key", lambda q, k, v: (scores(q, k) * q.new_ones(S).cumsum(0)).softmax(-1) @ v, qkv, "SCALE")
trap(
    "t_scale_per_batch",
    lambda q, k, v: (scores(q, k) * torch.arange(1.0, B + 1)[:, None, None, None]).softmax(-1) @ v,
    qkv,
    "SCALE",
)
trap(
    "t_scale_per_query_divides",
    lambda q, k, v: (scores(q, k) / torch.arange(1.0, S + 1)[:, None]).softmax(-1) @ v,
    qkv,
    "SCALE",
)
trap("t_bias_per_key", lambda q, k, v: (scores(q, k) + k.sum(-1)[..., None, :]).softmax(-1) @ v, qkv, "MASK")
trap(
    "t_bias_of_distance",
    lambda q, k, v: (scores(q, k) - 0.1 * (torch.arange(S)[:, None] - torch.arange(S)).abs()).softmax(-1) @ v,
    qkv,
    "MASK",
)
trap("t_bias_constant_per_key", lambda q, k, v: (scores(q, k) + torch.linspace(0, 1, S)).softmax(-1) @ v, qkv, "MASK")
trap(
    "t_sdpa_bias_parameter",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=q[0, :, :, :1] * k[0, :, :, 0][:, None]),
    qkv,
    "MASK",
)
trap(
    "t_sdpa_mask_keyword_of_an_input",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=q[..., :1] > 0),
    qkv,
    "MASK",
)
trap(
    "t_keep_by_an_input",
    lambda q, k, v: torch.where(k[..., 0][..., None, :] > -1, scores(q, k), -1e30).softmax(-1) @ v,
    qkv,
    "MASK",
)
trap(
    "t_top_k_where",
    lambda q, k, v: (
        (lambda s: torch.where(s >= s.topk(3, -1).values[..., -1:], s, float("-inf")))(scores(q, k)).softmax(-1) @ v
    ),
    qkv,
    None,
)
trap(
    "t_random_mask",
    lambda q, k, v: scores(q, k).masked_fill(torch.rand(S, S) > 0.7, -1e30).softmax(-1) @ v,
    qkv,
    "MASK",
    random=True,
)
trap(
    "t_baddbmm_of_a_bias",
    lambda q, k, v: torch.baddbmm(q[..., :1] * k[..., 0][:, None], q, k.mT, alpha=0.25).softmax(-1) @ v,
    lambda d, t: qkv(d, t, (8, S, D)),
    "MASK",
)
trap(
    "t_baddbmm_of_ones_per_key",
    lambda q, k, v: torch.baddbmm(torch.arange(float(S), dtype=q.dtype), q, k.mT, beta=0.5, alpha=0.25).softmax(-1) @ v,
    lambda d, t: qkv(d, t, (8, S, D)),
    None,
)
trap("t_double_precision_detour", lambda q, k, v: scores(q, k).double().softmax(-1).to(v.dtype) @ v, qkv, "CAST")
trap("t_float64_softmax", lambda q, k, v: F.softmax(scores(q, k), -1, dtype=torch.float64).to(v.dtype) @ v, qkv, "CAST")
trap(
    "t_operand_sum_is_no_key",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.25),
    qkv,
    "DROPOUT",
    random=True,
)
trap("t_dropout_functional", lambda q, k, v: F.dropout(scores(q, k).softmax(-1), 0.1) @ v, qkv, "DROPOUT", random=True)
trap(
    "t_dropout_alpha",
    lambda q, k, v: F.alpha_dropout(scores(q, k).softmax(-1), 0.1, True) @ v,
    qkv,
    "DROPOUT",
    random=True,
)
trap(
    "t_dropout_by_hand",
    lambda q, k, v: (scores(q, k).softmax(-1) * (torch.rand(S, S) > 0.1) / 0.9) @ v,
    qkv,
    "WEIGHTS_MODIFIED",
    random=True,
)
trap(
    "t_head_dim_of_300",
    lambda q, k, v: scores(q, k).softmax(-1) @ v,
    lambda d, t: qkv(d, t, (1, 2, S, 300)),
    "HEAD_DIM",
)
trap("t_2_dims", lambda q, k, v: (q @ k.T * 0.25).softmax(-1) @ v, lambda d, t: qkv(d, t, (S, D)), "RANK")
trap(
    "t_double_inputs_sdpa",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    lambda d, t: qkv(d, torch.float64),
    "DTYPE",
)
trap(
    "t_no_keys",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    lambda d, t: (qkv(d, t)[0], *qkv(d, t, (B, H, 0, D), 2)),
    "SHAPE",
)


@case(False, "nn.Dropout in training", train=True, because="DROPOUT", random=True)
def t_dropout_module(dev, dt):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.2)

        def forward(self, q, k, v):
            return self.dropout(scores(q, k).softmax(-1)) @ v

    return Attention(), qkv(dev, dt)


@case(False, "a relative position bias gathered from a table", source="Swin", because="MASK")
def t_swin_bias(dev, dt):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(2 * S - 1, H, generator=torch.Generator().manual_seed(1)))
            self.register_buffer("index", torch.arange(S)[:, None] - torch.arange(S) + S - 1)

        def forward(self, q, k, v):
            bias = self.table[self.index.view(-1)].view(S, S, H).permute(2, 0, 1)
            return (scores(q, k) + bias.unsqueeze(0)).softmax(-1) @ v

    return Attention(), qkv(dev, dt)


@case(False, "a temperature for each head", because="SCALE")
def t_temperature_per_head(dev, dt):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.temperature = nn.Parameter(torch.linspace(0.5, 1.5, H).view(1, H, 1, 1))

        def forward(self, q, k, v):
            return ((q @ k.mT) / self.temperature).softmax(-1) @ v

    return Attention(), qkv(dev, dt)


@case(False, "an embedding of distances is added", source="T5", because="MASK")
def t_embedded_bias(dev, dt):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Embedding(32, H)

        def forward(self, q, k, v):
            distance = (torch.arange(S)[:, None] - torch.arange(S)).clamp(0, 31)
            return (scores(q, k) + self.bias(distance).permute(2, 0, 1)).softmax(-1) @ v

    return Attention(), qkv(dev, dt)


@case(False, "weights kept on the module for a plot", dynamo_only=True, because="INNER_VALUE_USED")
def t_weights_kept(dev, dt):
    class Attention(nn.Module):
        def forward(self, q, k, v):
            weights = scores(q, k).softmax(-1)
            self.kept = weights.detach()
            return weights @ v

    return Attention(), qkv(dev, dt)
