"""Code that IS plain attention."""

# ruff: noqa: N805 - public code names it `s`, `m`, `x` as its authors do

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import case

B, H, S, D = 2, 4, 24, 16


def qkv(dev, dt, shape=(B, H, S, D), n=3):
    g = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=g).to(device=dev, dtype=dt) for _ in range(n))


def x_(dev, dt, c=H * D, s=S):
    return (torch.randn(B, s, c, generator=torch.Generator().manual_seed(0)).to(device=dev, dtype=dt),)


# ---- SDPA -----------------------------------------------------------------------------------------------------
@case(True, "plain SDPA")
def sdpa_plain(dev, dt):
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v)), qkv(dev, dt)


@case(True, "explicit None mask, p=0.0, scale", scale=0.2)
def sdpa_kwargs(dev, dt):
    return (
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=0.2
        )
    ), qkv(dev, dt)


@case(True, "all positional")
def sdpa_positional(dev, dt):
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, None, 0.0, False)), qkv(dev, dt)


@case(True, "enable_gqa", kv_heads=2)
def sdpa_gqa(dev, dt):
    (q,) = qkv(dev, dt, n=1)
    k, v = qkv(dev, dt, (B, 2, S, D), 2)
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)), (q, k, v)


@case(True, "cross attention, Sq != Sk")
def sdpa_cross(dev, dt):
    (q,) = qkv(dev, dt, (B, H, 9, D), 1)
    k, v = qkv(dev, dt, n=2)
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v)), (q, k, v)


@case(True, "causal with Sq != Sk: top-left aligned", causal=True)
def sdpa_causal_cross(dev, dt):
    (q,) = qkv(dev, dt, (B, H, 9, D), 1)
    k, v = qkv(dev, dt, n=2)
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)), (q, k, v)


@case(True, "3-D SDPA", layout="bsd")
def sdpa_3d(dev, dt):
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v)), qkv(dev, dt, (B * H, S, D))


@case(True, "V with another head dim")
def sdpa_dv(dev, dt):
    q, k = qkv(dev, dt, n=2)
    (v,) = qkv(dev, dt, (B, H, S, 8), 1)
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v)), (q, k, v)


class SdpaBlock(nn.Module):
    def __init__(s, causal=True):
        super().__init__()
        s.qkv = nn.Linear(H * D, 3 * H * D)
        s.o = nn.Linear(H * D, H * D)
        s.c = causal
        s.p = 0.1

    def forward(s, x):
        b, t, c = x.shape
        q, k, v = s.qkv(x).split(c, dim=2)
        q, k, v = (u.view(b, t, H, c // H).transpose(1, 2) for u in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=s.p if s.training else 0, is_causal=s.c)
        return s.o(y.transpose(1, 2).contiguous().view(b, t, c))


@case(True, "nanoGPT flash branch in eval: packed qkv, strided views", source="nanoGPT", causal=True)
def nanogpt_flash_eval(dev, dt):
    return SdpaBlock().to(dev, dt).eval(), x_(dev, dt)


class TimmAttn(nn.Module):
    def __init__(s, fused, dim=H * D, heads=H):
        super().__init__()
        s.h = heads
        s.d = dim // heads
        s.scale = s.d**-0.5
        s.fused = fused
        s.qkv = nn.Linear(dim, dim * 3)
        s.q_norm = nn.LayerNorm(s.d)
        s.k_norm = nn.LayerNorm(s.d)
        s.drop = nn.Dropout(0.0)
        s.proj = nn.Linear(dim, dim)

    def forward(s, x):
        b, n, c = x.shape
        q, k, v = s.qkv(x).reshape(b, n, 3, s.h, s.d).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = s.q_norm(q), s.k_norm(k)
        if s.fused:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=s.drop.p if s.training else 0.0)
        else:
            q = q * s.scale
            a = q @ k.transpose(-2, -1)
            a = a.softmax(dim=-1)
            a = s.drop(a)
            x = a @ v
        return s.proj(x.transpose(1, 2).reshape(b, n, c))


@case(True, "timm ViT fused_attn=False: q*scale before, nn.Dropout(0)", source="timm", scale=1.0)
def timm_unfused(dev, dt):
    return TimmAttn(False).to(dev, dt).eval(), x_(dev, dt)


@case(True, "the same in training: Dropout(p=0.0) is a no-op", source="timm", scale=1.0, train=True)
def timm_unfused_train_p0(dev, dt):
    return TimmAttn(False).to(dev, dt).train(), x_(dev, dt)


@case(True, "diffusers AttnProcessor2_0: SDPA over view/transpose, then .to(query.dtype)", source="diffusers")
def diffusers_sdpa(dev, dt):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.q, s.k, s.v, s.o = (nn.Linear(H * D, H * D) for _ in range(4))

        def forward(s, x):
            b = x.shape[0]
            q, k, v = s.q(x), s.k(x), s.v(x)
            d = q.shape[-1] // H
            q, k, v = (t.view(b, -1, H, d).transpose(1, 2) for t in (q, k, v))
            h = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False)
            return s.o(h.transpose(1, 2).reshape(b, -1, H * d).to(q.dtype))

    return M().to(dev, dt), x_(dev, dt)


# ---- manual, four-dimensional ------------------------------------------------------------------------------------
@case(True, "q @ k.transpose * scale -> F.softmax -> @ v", scale=D**-0.5)
def man_basic(dev, dt):
    return (lambda q, k, v: F.softmax(q @ k.transpose(-2, -1) * D**-0.5, dim=-1) @ v), qkv(dev, dt)


@case(True, "divide by math.sqrt", source="annotated transformer", scale=1 / math.sqrt(D))
def man_div_sqrt(dev, dt):
    return (
        lambda q, k, v: torch.matmul(
            torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1)), dim=-1), v
        )
    ), qkv(dev, dt)


@case(True, "swapaxes, torch.mul", scale=0.25)
def man_swapaxes(dev, dt):
    return (lambda q, k, v: torch.matmul(torch.mul(torch.matmul(q, k.swapaxes(-1, -2)), 0.25).softmax(dim=-1), v)), qkv(
        dev, dt
    )


@case(True, "permute(0,1,3,2) and .T-like spelling", scale=0.25)
def man_permute(dev, dt):
    return (lambda q, k, v: ((q @ k.permute(0, 1, 3, 2)).div(4.0)).softmax(dim=3) @ v), qkv(dev, dt)


@case(True, "no scale at all (T5-like without bias)", scale=1.0)
def man_noscale(dev, dt):
    return (lambda q, k, v: F.softmax(torch.matmul(q, k.transpose(3, 2)), dim=-1) @ v), qkv(dev, dt)


@case(True, "both q and k pre-scaled by d**-0.25", source="OpenAI guided-diffusion / whisper", scale=1.0)
def man_quarter_scales(dev, dt):
    return (lambda q, k, v: torch.softmax((q * D**-0.25) @ (k * D**-0.25).transpose(-1, -2), dim=-1) @ v), qkv(dev, dt)


@case(True, "scale twice: q*s then /t", scale=0.5)
def man_two_scales(dev, dt):
    return (lambda q, k, v: (((q @ k.transpose(-2, -1)) * 0.25) / 0.5).softmax(-1) @ v), qkv(dev, dt)


@case(True, "F.dropout(p=0.0, training=True)", scale=0.25, train=True)
def man_dropout_p0(dev, dt):
    return (lambda q, k, v: F.dropout(F.softmax(q @ k.mT / 4, -1), p=0.0, training=True) @ v), qkv(dev, dt)


@case(True, "q.float() @ k.float() then back", source="guided-diffusion", scale=0.25)
def man_upcast_qk(dev, dt):
    return (lambda q, k, v: torch.softmax(q.float() @ k.float().transpose(-1, -2) * 0.25, -1).to(v.dtype) @ v), qkv(
        dev, dt
    )


@case(True, "contiguous() in between, view of output", scale=0.25)
def man_contig(dev, dt):
    return (
        lambda q, k, v: torch.matmul(
            (torch.matmul(q.contiguous(), k.transpose(-1, -2).contiguous()) * 0.25).softmax(-1).contiguous(),
            v.contiguous(),
        )
    ), qkv(dev, dt)


@case(True, "in-place scaling, scores used once", scale=0.25)
def man_inplace_scale(dev, dt):
    def f(q, k, v):
        s = q @ k.transpose(-1, -2)
        s *= 0.25
        return s.softmax(-1) @ v

    return f, qkv(dev, dt)


@case(True, "scores.mul_()", scale=0.25)
def man_inplace_mul_(dev, dt):
    return (lambda q, k, v: (q @ k.transpose(-1, -2)).mul_(0.25).softmax(-1) @ v), qkv(dev, dt)


@case(True, "softmax spelled exp/sum", scale=0.25, tier="stretch")
def man_exp_sum(dev, dt):
    def f(q, k, v):
        e = torch.exp(q @ k.mT * 0.25)
        return (e / e.sum(-1, keepdim=True)) @ v

    return f, qkv(dev, dt)


@case(True, "stable exp/sum", scale=0.25, tier="stretch")
def man_exp_sum_stable(dev, dt):
    def f(q, k, v):
        s = q @ k.mT * 0.25
        e = (s - s.max(dim=-1, keepdim=True).values).exp()
        return (e / e.sum(dim=-1, keepdim=True)) @ v

    return f, qkv(dev, dt)


@case(True, "exp(log_softmax)", scale=0.25, tier="stretch")
def man_logsoftmax(dev, dt):
    return (lambda q, k, v: F.log_softmax(q @ k.mT * 0.25, -1).exp() @ v), qkv(dev, dt)


@case(True, "unnormalised sum divided afterwards: (e@v)/sum", scale=0.25, tier="stretch")
def man_late_norm(dev, dt):
    def f(q, k, v):
        e = torch.exp(q @ k.mT * 0.25)
        return (e @ v) / e.sum(-1, keepdim=True)

    return f, qkv(dev, dt)


@case(True, "scores transposed: softmax over dim -2 of k@qT, then transposed", scale=0.25, tier="stretch")
def man_kq(dev, dt):
    return (lambda q, k, v: ((k @ q.mT) * 0.25).softmax(-2).mT @ v), qkv(dev, dt)


@case(
    True,
    "output computed transposed: v^T @ p^T (channels-first)",
    source="ldm AttnBlock",
    scale=0.25,
    layout="bsd",
)
def ldm_attnblock(dev, dt):
    """b c h w attention of a VAE: w_ = bmm(q, k); softmax dim 2; h_ = bmm(v, w_.permute(0,2,1))."""

    def f(q, k, v):
        b, c, h, w = q.shape
        q = q.reshape(b, c, h * w).permute(0, 2, 1)
        k = k.reshape(b, c, h * w)
        a = torch.bmm(q, k) * (int(c) ** -0.5)
        a = F.softmax(a, dim=2)
        v = v.reshape(b, c, h * w)
        return torch.bmm(v, a.permute(0, 2, 1)).reshape(b, c, h, w)

    return f, qkv(dev, dt, (B, 16, 5, 5))


# ---- model families
class MinGPTNoMask(nn.Module):
    def __init__(s):
        super().__init__()
        s.c = nn.Linear(H * D, 3 * H * D)
        s.d = nn.Dropout(0.1)
        s.o = nn.Linear(H * D, H * D)

    def forward(s, x):
        b, t, c = x.size()
        q, k, v = s.c(x).split(c, dim=2)
        k = k.view(b, t, H, c // H).transpose(1, 2)
        q = q.view(b, t, H, c // H).transpose(1, 2)
        v = v.view(b, t, H, c // H).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = s.d(F.softmax(att, dim=-1))
        return s.o((att @ v).transpose(1, 2).contiguous().view(b, t, c))


@case(True, "minGPT manual branch without its mask, eval", source="minGPT", scale=1 / math.sqrt(D))
def mingpt_nomask(dev, dt):
    return MinGPTNoMask().to(dev, dt).eval(), x_(dev, dt)


def hf_eager(q, k, v, scaling, dropout=0.0, training=False, n_rep=1, mask=None):
    if n_rep > 1:

        def rep(t):
            b, h, s, d = t.shape
            return t[:, :, None, :, :].expand(b, h, n_rep, s, d).reshape(b, h * n_rep, s, d)

        k, v = rep(k), rep(v)
    w = torch.matmul(q, k.transpose(2, 3)) * scaling
    if mask is not None:
        w = w + mask[:, :, :, : k.shape[-2]]
    w = F.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype)
    w = F.dropout(w, p=dropout, training=training)
    return torch.matmul(w, v).transpose(1, 2).contiguous(), w


@case(True, "HF Llama eager, weights dropped, repeat_kv", source="transformers Llama", scale=D**-0.5, kv_heads=2)
def llama_eager(dev, dt):
    (q,) = qkv(dev, dt, n=1)
    k, v = qkv(dev, dt, (B, 2, S, D), 2)
    return (lambda q, k, v: hf_eager(q, k, v, D**-0.5, n_rep=2)[0]), (q, k, v)


@case(
    True,
    "HF Llama eager with rotary embedding before",
    source="transformers Llama",
    scale=D**-0.5,
    kv_heads=2,
)
def llama_rope(dev, dt):
    (q,) = qkv(dev, dt, n=1)
    k, v = qkv(dev, dt, (B, 2, S, D), 2)
    cos, sin = qkv(dev, dt, (1, 1, S, D), 2)

    def rot(t):
        a, b = t[..., : t.shape[-1] // 2], t[..., t.shape[-1] // 2 :]
        return torch.cat((-b, a), dim=-1)

    return (lambda q, k, v, c, s: hf_eager(q * c + rot(q) * s, k * c + rot(k) * s, v, D**-0.5, n_rep=2)[0]), (
        q,
        k,
        v,
        cos,
        sin,
    )


@case(True, "GQA with repeat_interleave", source="gpt-fast / lit-gpt", scale=0.25, kv_heads=2)
def gqa_repeat_interleave(dev, dt):
    (q,) = qkv(dev, dt, n=1)
    k, v = qkv(dev, dt, (B, 2, S, D), 2)
    return (
        lambda q, k, v: F.softmax(q @ k.repeat_interleave(2, dim=1).mT * 0.25, -1) @ v.repeat_interleave(2, dim=1)
    ), (q, k, v)


@case(
    True,
    "k.repeat(1,n,1,1): tiled heads; plain attention over the repeated K, not GQA by division",
    scale=0.25,
)
def gqa_tile(dev, dt):
    (q,) = qkv(dev, dt, n=1)
    k, v = qkv(dev, dt, (B, 2, S, D), 2)
    return (lambda q, k, v: F.softmax(q @ k.repeat(1, 2, 1, 1).mT * 0.25, -1) @ v.repeat(1, 2, 1, 1)), (
        q,
        k,
        v,
    )


@case(True, "multi-query by broadcasting: K, V of one head", source="PaLM-like", scale=0.25)
def mqa_broadcast(dev, dt):
    (q,) = qkv(dev, dt, n=1)
    k, v = qkv(dev, dt, (B, 1, S, D), 2)
    return (lambda q, k, v: F.softmax(q @ k.transpose(-1, -2) * 0.25, -1) @ v), (q, k, v)


@case(True, "grouped 5-D GQA: q viewed (b, hkv, g, s, d)", scale=0.25, tier="stretch")
def gqa_5d(dev, dt):
    (q,) = qkv(dev, dt, n=1)
    k, v = qkv(dev, dt, (B, 2, S, D), 2)

    def f(q, k, v):
        b, h, s, d = q.shape
        q = q.view(b, 2, 2, s, d)
        return (F.softmax(q @ k.unsqueeze(2).mT * 0.25, -1) @ v.unsqueeze(2)).reshape(b, h, s, d)

    return f, (q, k, v)


@case(
    True,
    "BART style: scores viewed 4-D and back to 3-D around softmax",
    source="transformers BART (older)",
    scale=1.0,
    layout="bsd",
)
def bart_views(dev, dt):
    def f(q, k, v):
        w = torch.bmm(q, k.transpose(1, 2)).view(B, H, S, S).view(B * H, S, S)
        return torch.bmm(F.softmax(w, dim=-1).view(B, H, S, S).view(B * H, S, S), v)

    return f, qkv(dev, dt, (B * H, S, D))


@case(
    True,
    "original Stable Diffusion CrossAttention einsum",
    source="CompVis latent-diffusion",
    scale=0.25,
    layout="bsd",
)
def sd_einsum(dev, dt):
    def f(q, k, v):
        sim = torch.einsum("b i d, b j d -> b i j", q, k) * 0.25
        return torch.einsum("b i j, b j d -> b i d", sim.softmax(dim=-1), v)

    return f, qkv(dev, dt, (B * H, S, D))


@case(True, "lucidrains vit-pytorch: einsum 4-D, stable", source="vit-pytorch / x-transformers", scale=0.25)
def lucid_einsum(dev, dt):
    def f(q, k, v):
        dots = torch.einsum("b h i d, b h j d -> b h i j", q, k) * 0.25
        return torch.einsum("b h i j, b h j d -> b h i d", dots.softmax(dim=-1), v)

    return f, qkv(dev, dt)


@case(True, "einsum with ellipsis", scale=0.25)
def einsum_ellipsis(dev, dt):
    return (
        lambda q, k, v: torch.einsum(
            "...ij,...jd->...id", (torch.einsum("...id,...jd->...ij", q, k) * 0.25).softmax(-1), v
        )
    ), qkv(dev, dt)


@case(
    True,
    "seq-major einsum bqhd,bkhd->bhqk, output bqhd",
    source="flash-attn reference / Haiku ports",
    scale=0.25,
    layout="bshd",
)
def einsum_bshd(dev, dt):
    def f(q, k, v):
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.25
        return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(s, dim=-1), v)

    return f, qkv(dev, dt, (B, S, H, D))


@case(True, "einsum scores, matmul output", scale=0.25)
def einsum_mixed(dev, dt):
    return (lambda q, k, v: (torch.einsum("bhid,bhjd->bhij", q, k) * 0.25).softmax(-1) @ v), qkv(dev, dt)


@case(True, "two attentions in one graph (encoder then cross)", scale=0.25, n=2)
def two_in_one(dev, dt):
    def f(q, k, v):
        o = F.softmax(q @ k.mT * 0.25, -1) @ v
        return F.scaled_dot_product_attention(o, k, v)

    return f, qkv(dev, dt)


@case(
    True,
    "a constant 0-dim tensor as scale (registered buffer): value unknown, but foldable only if constant",
    scale=None,
    tier="stretch",
)
def scale_const_tensor(dev, dt):
    return (
        lambda q, k, v: (q @ k.mT / torch.sqrt(torch.tensor(D, dtype=q.dtype, device=q.device))).softmax(-1) @ v
    ), qkv(dev, dt)
