"""Code that looks like attention but must NOT be replaced by the maskless, dropoutless kernel."""

# ruff: noqa: N805 - public code names it `s`, `m`, `x` as its authors do

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import case
from .attentions import B, D, H, S, SdpaBlock, hf_eager, qkv, x_


def m_(dev, dt, shape=(B, 1, S, S)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(device=dev, dtype=dt)


@case(False, "SDPA with float mask")
def t_sdpa_mask(dev, dt):
    return (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m)), (
        *qkv(dev, dt),
        m_(dev, dt),
    )


@case(False, "SDPA with bool mask, positional")
def t_sdpa_boolmask(dev, dt):
    return (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m > 0)), (*qkv(dev, dt), m_(dev, dt))


@case(False, "SDPA with dropout")
def t_sdpa_dropout(dev, dt):
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)), qkv(dev, dt)


@case(False, "nanoGPT flash branch in training: dropout_p=0.1", source="nanoGPT", train=True)
def t_nanogpt_train(dev, dt):
    return SdpaBlock().to(dev, dt).train(), x_(dev, dt)


@case(False, "masked_fill with a buffer of unknown content", source="nanoGPT manual branch")
def t_masked_fill(dev, dt):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("bias", torch.tril(torch.ones(S, S)).view(1, 1, S, S))

        def forward(s, q, k, v):
            return F.softmax((q @ k.mT * 0.25).masked_fill(s.bias[:, :, :S, :S] == 0, float("-inf")), dim=-1) @ v

    return M().to(dev), qkv(dev, dt)


@case(False, "relative position bias", source="T5")
def t_t5_bias(dev, dt):
    def f(q, k, v, b):
        s = torch.matmul(q, k.transpose(3, 2))
        s += b
        return torch.matmul(F.softmax(s.float(), dim=-1).type_as(s), v)

    return f, (*qkv(dev, dt), m_(dev, dt, (1, H, S, S)))


@case(False, "ALiBi through baddbmm(alibi, q, k, beta=1)", source="BLOOM")
def t_bloom_alibi(dev, dt):
    def f(q, k, v, a):
        return torch.bmm(F.softmax(torch.baddbmm(a, q, k.transpose(1, 2), beta=1.0, alpha=0.25), -1), v)

    return f, (*qkv(dev, dt, (B * H, S, D)), m_(dev, dt, (B * H, 1, S)))


@case(False, "softmax over the query dim")
def t_wrong_dim(dev, dt):
    return (lambda q, k, v: (q @ k.mT * 0.25).softmax(-2) @ v), qkv(dev, dt)


@case(False, "softmax over the head dim")
def t_head_dim(dev, dt):
    return (lambda q, k, v: (q @ k.mT * 0.25).softmax(dim=1) @ v), qkv(dev, dt)


@case(False, "weights returned", source="HF output_attentions=True")
def t_weights_returned(dev, dt):
    return (lambda q, k, v: hf_eager(q, k, v, 0.25)), qkv(dev, dt)


@case(False, "scores returned")
def t_scores_returned(dev, dt):
    def f(q, k, v):
        s = q @ k.mT * 0.25
        return s.softmax(-1) @ v, s

    return f, qkv(dev, dt)


@case(False, "scores used elsewhere (entropy regulariser)")
def t_scores_used(dev, dt):
    def f(q, k, v):
        p = (q @ k.mT * 0.25).softmax(-1)
        return p @ v + (p * p.clamp_min(1e-9).log()).sum()

    return f, qkv(dev, dt)


@case(False, "learned scale per head (logit_scale)", source="SwinV2 / CLIP-like")
def t_learned_scale(dev, dt):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.t = nn.Parameter(torch.ones(H, 1, 1) * 0.2)

        def forward(s, q, k, v):
            return (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * s.t.exp()).softmax(-1) @ v

    return M().to(dev, dt), qkv(dev, dt)


@case(False, "scale that varies by query (log-n scaling)")
def t_row_scale(dev, dt):
    return (lambda q, k, v, r: (q @ k.mT * r).softmax(-1) @ v), (*qkv(dev, dt), m_(dev, dt, (S, 1)))


@case(False, "weights multiplied after softmax by a tensor", source="gated attention, XCA")
def t_post_mul(dev, dt):
    return (lambda q, k, v, g: ((q @ k.mT * 0.25).softmax(-1) * g) @ v), (*qkv(dev, dt), m_(dev, dt))


@case(False, "head mask after softmax", source="HF BERT head_mask")
def t_head_mask(dev, dt):
    return (lambda q, k, v, g: ((q @ k.mT * 0.25).softmax(-1) * g) @ v), (
        *qkv(dev, dt),
        m_(dev, dt, (1, H, 1, 1)),
    )


@case(False, "weights renormalised after softmax: p/(p.sum(-2))", source="slot attention")
def t_slot(dev, dt):
    def f(q, k, v):
        p = (q @ k.mT * 0.25).softmax(dim=-2) + 1e-8
        return (p / p.sum(-1, keepdim=True)) @ v

    return f, qkv(dev, dt)


@case(False, "double softmax")
def t_double_softmax(dev, dt):
    return (lambda q, k, v: (q @ k.mT * 0.25).softmax(-1).softmax(-1) @ v), qkv(dev, dt)


@case(False, "channel attention: q^T k (D x D), then v^T", source="XCiT, Restormer")
def t_xca(dev, dt):
    return (
        lambda q, k, v: (
            ((F.normalize(q.mT, dim=-1) @ F.normalize(k.mT, dim=-1).mT).softmax(-1) @ v.mT + q.mT.sum()).mT * 1.0
            if False
            else ((q.mT @ k) * 0.25).relu().softmax(-1) @ v.mT
        )
    ), qkv(dev, dt)


@case(False, "linear attention: q.softmax(-1), k.softmax(-2)", source="lucidrains linear-attention")
def t_linear_attn(dev, dt):
    return (lambda q, k, v: q.softmax(-1) @ (k.softmax(-2).mT @ v)), qkv(dev, dt)


@case(False, "attention sink logit concatenated", source="gpt-oss")
def t_sink(dev, dt):
    def f(q, k, v, s):
        w = torch.cat([q @ k.mT * 0.25, s.expand(B, H, S, 1)], -1).softmax(-1)
        return w[..., :-1] @ v

    return f, (*qkv(dev, dt), m_(dev, dt, (1, H, 1, 1)))


@case(False, "scores mutated in place through another reference")
def t_inplace_alias(dev, dt):
    def f(q, k, v):
        s = q @ k.mT * 0.25
        a = s[..., 0]
        a.fill_(-1e4)
        return s.softmax(-1) @ v

    return f, qkv(dev, dt)


@case(False, "setitem on the scores")
def t_setitem(dev, dt):
    def f(q, k, v):
        s = q @ k.mT * 0.25
        s[..., -1] = float("-inf")
        return s.softmax(-1) @ v

    return f, qkv(dev, dt)


@case(False, "masked_fill_ in place")
def t_masked_fill_(dev, dt):
    def f(q, k, v, m):
        s = q @ k.mT * 0.25
        s.masked_fill_(m > 0, float("-inf"))
        return s.softmax(-1) @ v

    return f, (*qkv(dev, dt), m_(dev, dt))


@case(False, "gumbel/noise added to the scores", train=True, random=True)
def t_noise(dev, dt):
    return (
        lambda q, k, v: (q @ k.mT * 0.25 + torch.rand(B, H, S, S, device=q.device, dtype=q.dtype)).softmax(-1) @ v
    ), qkv(dev, dt)


@case(False, "top-k sparse attention", source="explicit sparse transformer")
def t_topk(dev, dt):
    def f(q, k, v):
        s = q @ k.mT * 0.25
        return s.masked_fill(s < s.topk(4, -1).values[..., -1:], float("-inf")).softmax(-1) @ v

    return f, qkv(dev, dt)


@case(False, "talking heads: linear mix of heads before softmax", source="talking-heads")
def t_talking(dev, dt):
    return (lambda q, k, v, w: torch.einsum("bhij,hg->bgij", q @ k.mT * 0.25, w).softmax(-1) @ v), (
        *qkv(dev, dt),
        m_(dev, dt, (H, H)),
    )


@case(False, "relu/entmax instead of softmax: sigmoid attention")
def t_sigmoid(dev, dt):
    return (lambda q, k, v: torch.sigmoid(q @ k.mT * 0.25) @ v), qkv(dev, dt)


@case(False, "cosine + scalar added (constant shift is harmless, yet +tensor is not)")
def t_disentangled(dev, dt):
    return (lambda q, k, v, r: ((q @ k.mT + q @ r.mT) * 0.25).softmax(-1) @ v), (
        *qkv(dev, dt),
        m_(dev, dt, (1, H, S, D)),
    )


@case(False, "float64: unsupported dtype")
def t_f64(dev, dt):
    return (lambda q, k, v: (q @ k.mT * 0.25).softmax(-1) @ v), qkv("cpu", torch.float64)


@case(
    False,
    "classifier head: softmax(x @ W.T) @ E is attention only if W is per-token; 2-D mixture",
    source="mixture of softmaxes",
)
def t_2d_mix(dev, dt):
    (x,) = qkv(dev, dt, (S, D), 1)
    (w,) = qkv(dev, dt, (300, D), 1)
    (e,) = qkv(dev, dt, (300, 400), 1)
    return (lambda x, w, e: (x @ w.T).softmax(-1) @ e), (x, w, e)


@case(False, "probs detached: gradient must not flow to q, k", grad_only=True)
def t_detach(dev, dt):
    return (lambda q, k, v: (q @ k.mT * 0.25).softmax(-1).detach() @ v), qkv(dev, dt)


@case(False, "scores computed under no_grad", grad_only=True)
def t_nograd_scores(dev, dt):
    def f(q, k, v):
        with torch.no_grad():
            p = (q @ k.mT * 0.25).softmax(-1)
        return p @ v

    return f, qkv(dev, dt)


@case(False, "complex")
def t_complex(dev, dt):
    def f(q, k, v):
        return ((q @ k.mT).abs() * 0.25).softmax(-1) @ v.real

    q, k, v = qkv("cpu", torch.complex64)
    return f, (q, k, v)
