"""Model families as modules: how their projections, layouts, casts and names go."""

# ruff: noqa: E731

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import case
from .attentions import B, D, H, S, qkv, x_

C = H * D


class Block(nn.Module):
    """Projections from x (b, s, c), and the attention of a subclass on q, k, v (b, h, s, d)."""

    def __init__(self, packed=True):
        super().__init__()
        self.qkv = nn.Linear(C, 3 * C) if packed else None
        self.parts = None if packed else nn.ModuleList(nn.Linear(C, C) for _ in range(3))
        self.out = nn.Linear(C, C)

    def split(self, x):
        q, k, v = self.qkv(x).chunk(3, -1) if self.parts is None else (part(x) for part in self.parts)
        return (t.view(x.shape[0], -1, H, D).transpose(1, 2) for t in (q, k, v))

    def forward(self, x):
        out = self.attend(*self.split(x))
        return self.out(out.transpose(1, 2).reshape(x.shape))


def block(name, reason, attend, source="", packed=True, **facts):
    """A case of a Block whose attention is `attend(self, q, k, v)`."""

    def build(dev, dt):
        kind = type(name, (Block,), {"attend": attend})
        return kind(packed).to(dev, dt).eval(), x_(dev, dt)

    build.__name__ = name
    case(True, reason, source=source, **facts)(build)


def nanogpt_manual(self, q, k, v):
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    T = q.size(2)  # noqa: N806
    att = att.masked_fill(
        torch.tril(torch.ones(T, T, device=q.device)).view(1, 1, T, T)[:, :, :T, :T] == 0, float("-inf")
    )
    return F.dropout(F.softmax(att, dim=-1), 0.1, self.training) @ v


def fairseq(self, q, k, v):
    q, k, v = (t.reshape(-1, t.shape[2], D) for t in (q * D**-0.5, k, v))
    weights = torch.bmm(q, k.transpose(1, 2))
    assert list(weights.size()) == [q.shape[0], q.shape[1], k.shape[1]]
    weights_float = F.softmax(weights, dim=-1, dtype=torch.float32 if weights.dtype != torch.float64 else torch.float64)
    probs = F.dropout(weights_float.type_as(weights), p=0.1, training=self.training)
    return torch.bmm(probs, v).view(-1, H, q.shape[1], D)


def fairseq_causal(self, q, k, v):
    b, _, t, _ = q.shape
    future = torch.triu(torch.full((t, t), float("-inf"), dtype=q.dtype, device=q.device), 1)
    q, k, v = (part.reshape(-1, t, D) for part in (q * D**-0.5, k, v))
    weights = torch.bmm(q, k.transpose(1, 2))
    weights = weights + future.unsqueeze(0)
    return torch.bmm(F.softmax(weights, dim=-1), v).view(b, H, t, D)


def fairseq_causal_views(self, q, k, v):
    b, _, t, _ = q.shape
    hidden = torch.ones(t, t, dtype=torch.bool, device=q.device).triu(1)
    q, k, v = (part.reshape(-1, t, D) for part in (q * D**-0.5, k, v))
    weights = torch.bmm(q, k.transpose(1, 2)).view(b, H, t, t)
    weights = weights.masked_fill(hidden[None, None], float("-inf")).view(b * H, t, t)
    return torch.bmm(F.softmax(weights, dim=-1), v).view(b, H, t, D)


def xformers_reference(self, q, k, v):
    q = q * (1.0 / q.shape[-1] ** 0.5)
    return (q @ k.transpose(-2, -1)).softmax(-1) @ v


def diffusers_processor(self, q, k, v):
    q, k, v = (t.reshape(t.shape[0] * H, t.shape[2], D) for t in (q, k, v))
    empty = torch.empty(q.shape[0], q.shape[1], k.shape[1], dtype=q.dtype, device=q.device)
    scores = torch.baddbmm(empty, q, k.transpose(-1, -2), beta=0, alpha=D**-0.5)
    del empty
    probs = scores.softmax(dim=-1)
    del scores
    return torch.bmm(probs.to(q.dtype), v).reshape(-1, H, v.shape[1], D)


def clip_eager(self, q, k, v):
    weights = torch.matmul(q, k.transpose(-1, -2)) * D**-0.5
    weights = F.softmax(weights, dim=-1).to(q.dtype)
    weights = F.dropout(weights, p=0.0, training=self.training)
    return torch.matmul(weights, v).contiguous()


def t5_without_bias(self, q, k, v):
    scores = torch.matmul(q, k.transpose(3, 2))
    weights = F.softmax(scores.float() if scores.dtype == torch.float16 else scores, dim=-1).type_as(scores)
    return torch.matmul(F.dropout(weights, p=0.1, training=self.training), v)


def sam_decoder(self, q, k, v):
    attn = q @ k.permute(0, 1, 3, 2)
    attn = attn / math.sqrt(q.shape[3])
    return torch.softmax(attn, dim=-1) @ v


def x_transformers_causal(self, q, k, v):
    dots = torch.einsum("b h i d, b h j d -> b h i j", q, k) * D**-0.5
    i, j = dots.shape[-2:]
    mask = torch.ones((i, j), dtype=torch.bool, device=q.device).triu(j - i + 1)
    dots = dots.masked_fill(mask, -torch.finfo(dots.dtype).max)
    return torch.einsum("b h i j, b h j d -> b h i d", dots.softmax(dim=-1), v)


def palm_shifted(self, q, k, v):
    sim = torch.einsum("b h i d, b h j d -> b h i j", q * D**-0.5, k)
    sim = sim - sim.amax(dim=-1, keepdim=True).detach()
    return torch.einsum("b h i j, b h j d -> b h i d", sim.softmax(dim=-1), v)


def cosine_with_one_temperature(self, q, k, v):
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    return torch.softmax(q @ k.transpose(-1, -2) * 10.0, dim=-1) @ v


def query_key_norm(self, q, k, v):
    q, k = (F.layer_norm(t, (D,)) for t in (q, k))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def rotary(self, q, k, v):
    position = torch.arange(q.shape[2], device=q.device, dtype=q.dtype)
    angle = position[:, None] * torch.linspace(1, 0.1, D // 2, device=q.device, dtype=q.dtype)
    cos, sin = (torch.cat((f, f), -1) for f in (angle.cos(), angle.sin()))
    turn = lambda t: t * cos + torch.cat((-t[..., D // 2 :], t[..., : D // 2]), -1) * sin
    return F.softmax(turn(q) @ turn(k).mT / D**0.5, dim=-1) @ v


def guided_diffusion(self, q, k, v):
    q, k, v = (t.transpose(2, 3).reshape(-1, D, t.shape[2]) for t in (q, k, v))
    scale = 1 / math.sqrt(math.sqrt(D))
    weight = torch.einsum("bct,bcs->bts", q * scale, k * scale)
    weight = torch.softmax(weight, dim=-1).type(weight.dtype)
    return torch.einsum("bts,bcs->bct", weight, v).reshape(-1, H, D, v.shape[-1]).transpose(2, 3)


def diffusion_in_place(self, q, k, v):
    scores = torch.einsum("bhid,bhjd->bhij", q, k)
    scores *= D**-0.5
    return scores.softmax(dim=-1) @ v


def performer_exact(self, q, k, v):
    dots = q @ k.transpose(-2, -1) * D**-0.5
    return (dots - torch.logsumexp(dots, dim=-1, keepdim=True)).exp() @ v


block(
    "fam_nanogpt_manual",
    "nanoGPT's slow branch with its mask built in the graph",
    nanogpt_manual,
    "nanoGPT",
    scale=0.25,
    causal=True,
)
block("fam_fairseq", "fairseq: 3-D bmm, float softmax, type_as", fairseq, "fairseq", False, scale=1.0)
block("fam_fairseq_causal", "fairseq with its future mask", fairseq_causal, "fairseq", False, scale=1.0, causal=True)
block(
    "fam_fairseq_causal_views",
    "fairseq: scores seen by head for the mask",
    fairseq_causal_views,
    "fairseq",
    False,
    scale=1.0,
    causal=True,
)
block("fam_xformers_reference", "xformers' reference", xformers_reference, "xformers", scale=1.0)
block(
    "fam_diffusers_processor",
    "diffusers' AttnProcessor: baddbmm of empty",
    diffusers_processor,
    "diffusers",
    False,
    scale=0.25,
)
block("fam_clip_eager", "CLIP's eager attention", clip_eager, "transformers CLIP", False, scale=0.25)
block("fam_t5_without_bias", "T5 without its bias", t5_without_bias, "transformers T5", False, scale=1.0)
block("fam_sam_decoder", "SAM's mask decoder", sam_decoder, "segment-anything", False, scale=0.25)
block(
    "fam_x_transformers_causal",
    "x-transformers' causal decoder",
    x_transformers_causal,
    "x-transformers",
    False,
    scale=0.25,
    causal=True,
)
block("fam_palm_shifted", "PaLM: the maximum is taken off before the softmax", palm_shifted, "PaLM-pytorch", scale=1.0)
block(
    "fam_cosine",
    "cosine similarity with a constant temperature",
    cosine_with_one_temperature,
    "vit-pytorch",
    scale=10.0,
)
block("fam_query_key_norm", "normalised q and k, causal SDPA", query_key_norm, causal=True)
block("fam_rotary", "rotary positions", rotary, scale=0.25)
block(
    "fam_guided_diffusion",
    "channels before length, both scaled by the fourth root",
    guided_diffusion,
    "guided-diffusion",
    scale=1.0,
)
block("fam_in_place_einsum", "einsum scaled in place", diffusion_in_place, "stable-diffusion", scale=0.25)
block("fam_logsumexp", "softmax by logsumexp", performer_exact, scale=0.25)


class Packed(nn.Module):
    """Ways to take q, k and v out of one projection."""

    def __init__(self, take, causal=False):
        super().__init__()
        self.project, self.take, self.causal = nn.Linear(C, 3 * C, bias=False), take, causal

    def forward(self, x):
        q, k, v = self.take(self.project(x))
        return (q @ k.transpose(-2, -1) * D**-0.5).softmax(dim=-1) @ v


def heads(t):
    return t.reshape(t.shape[0], t.shape[1], H, D).transpose(1, 2)


TAKES = {
    "split": lambda t: map(heads, t.split(C, dim=-1)),
    "tensor_split": lambda t: map(heads, t.tensor_split(3, dim=-1)),
    "slices": lambda t: map(heads, (t[..., :C], t[..., C : 2 * C], t[..., 2 * C :])),
    "unbind_0": lambda t: t.view(B, -1, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0),
    "unbind_2": lambda t: (u.transpose(1, 2) for u in t.unflatten(-1, (3, H, D)).unbind(2)),
    "select": lambda t: (t.view(B, -1, 3, H, D)[:, :, part].transpose(1, 2) for part in range(3)),
    "index": lambda t: (lambda u: (u[0], u[1], u[2]))(t.reshape(B, -1, 3, H, D).permute(2, 0, 3, 1, 4)),
    "heads_outside": lambda t: (u.transpose(1, 2) for u in t.view(B, -1, H, 3, D).unbind(3)),
    "heads_with_chunk": lambda t: (u.transpose(1, 2) for u in t.view(B, -1, H, 3 * D).chunk(3, dim=-1)),
    "narrow": lambda t: (heads(t.narrow(-1, part * C, C)) for part in range(3)),
    "movedim": lambda t: t.view(B, -1, 3, H, D).movedim((2, 3), (0, 2)),
    "rearranged": lambda t: (u.view(B, -1, H, D).permute(0, 2, 1, 3) for u in t.chunk(3, dim=-1)),
}
for take_name, take in TAKES.items():

    def packed(dev, dt, take=take):
        return Packed(take).to(dev, dt), x_(dev, dt)

    packed.__name__ = f"packed_{take_name}"
    case(True, f"q, k and v out of one projection by {take_name}", scale=D**-0.5)(packed)


@case(True, "Perceiver: learned latents ask, the input answers", source="perceiver", scale=1.0)
def fam_perceiver(dev, dt):
    class Perceiver(nn.Module):
        def __init__(self):
            super().__init__()
            self.latents = nn.Parameter(torch.randn(10, C, generator=torch.Generator().manual_seed(3)))
            self.q, self.kv, self.out = nn.Linear(C, C), nn.Linear(C, 2 * C), nn.Linear(C, C)

        def forward(self, x):
            latents = self.latents.expand(x.shape[0], -1, -1)
            q, (k, v) = self.q(latents) * D**-0.5, self.kv(x).chunk(2, dim=-1)
            q, k, v = (t.reshape(t.shape[0], -1, H, D).permute(0, 2, 1, 3) for t in (q, k, v))
            weights = torch.einsum("b h i d, b h j d -> b h i j", q, k).softmax(dim=-1)
            out = torch.einsum("b h i j, b h j d -> b h i d", weights, v)
            return self.out(out.permute(0, 2, 1, 3).reshape(out.shape[0], -1, C))

    return Perceiver().to(dev, dt), x_(dev, dt)


@case(True, "a pooling head: one learned query", source="SigLIP, CoCa", scale=0.25)
def fam_attention_pool(dev, dt):
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.probe = nn.Parameter(torch.randn(1, 1, C, generator=torch.Generator().manual_seed(3)))
            self.kv = nn.Linear(C, 2 * C)

        def forward(self, x):
            k, v = map(heads, self.kv(x).chunk(2, -1))
            q = heads(self.probe.repeat(x.shape[0], 1, 1))
            return ((q @ k.mT * 0.25).softmax(-1) @ v).transpose(1, 2).flatten(2)

    return Pool().to(dev, dt), x_(dev, dt)


@case(
    True,
    "the annotated transformer: a function that may also return its weights",
    source="annotated transformer",
    scale=0.25,
)
def fam_annotated(dev, dt):
    def attention(query, key, value, mask=None, dropout=None):
        d_k = query.size(-1)
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        p_attn = scores.softmax(dim=-1)
        if dropout is not None:
            p_attn = dropout(p_attn)
        return torch.matmul(p_attn, value), p_attn

    return (lambda q, k, v: attention(q, k, v, dropout=nn.Dropout(0.0))[0]), qkv(dev, dt)


@case(True, "blocks within blocks, a residual and a norm around each", scale=0.25, n=3)
def fam_nested_modules(dev, dt):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.attention = nn.LayerNorm(C), Packed(TAKES["unbind_0"])

        def forward(self, x):
            return x + self.attention(self.norm(x)).transpose(1, 2).flatten(2)

    return nn.Sequential(Layer(), nn.Sequential(Layer(), Layer())).to(dev, dt), x_(dev, dt)


@case(True, "a forward hook on the attention module", scale=0.25)
def fam_with_hooks(dev, dt):
    module = Packed(TAKES["split"]).to(dev, dt)
    module.register_forward_hook(lambda module, inputs, output: output * 2)
    module.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    return module, x_(dev, dt)


@case(True, "a scale that is a parameter: its gradient survives", scale_on_q=True)
def fam_learned_scale(dev, dt):
    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(0.3))

        def forward(self, q, k, v):
            return (q @ k.mT * self.scale).softmax(-1) @ v

    return Learned().to(dev, dt), qkv(dev, dt)


@case(True, "one logit scale, exponentiated and clamped", source="CLIP-like", scale_on_q=True)
def fam_logit_scale(dev, dt):
    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.logit_scale = nn.Parameter(torch.ones(1) * 0.2)

        def forward(self, q, k, v):
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
            return (self.logit_scale.exp().clamp(max=100) * (q @ k.mT)).softmax(-1) @ v

    return Learned().to(dev, dt), qkv(dev, dt)


@case(True, "a temperature in a buffer of one element", scale_on_q=True)
def fam_scale_buffer(dev, dt):
    class Buffered(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("temperature", torch.tensor([[[[4.0]]]]))

        def forward(self, q, k, v):
            return (torch.matmul(q, k.transpose(-1, -2)) / self.temperature).softmax(-1) @ v

    return Buffered().to(dev, dt), qkv(dev, dt)


@case(True, "a float of the module", scale=0.37)
def fam_scale_attribute(dev, dt):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 0.37

        def forward(self, q, k, v):
            return (q @ k.mT).mul(self.scale).softmax(-1) @ v

    return Scaled(), qkv(dev, dt)


@case(True, "images: b c h w flattened, channels first", source="SAGAN without its gamma", scale=1.0)
def fam_sagan(dev, dt):
    def function(q, k, v):
        b, c, h, w = v.shape
        query, key, value = (t.view(b, -1, h * w) for t in (q, k, v))
        attention = torch.softmax(torch.bmm(query.permute(0, 2, 1), key), dim=-1)
        return torch.bmm(value, attention.permute(0, 2, 1)).view(b, c, h, w)

    return function, qkv(dev, dt, (B, D, 4, 6))


@case(True, "axial attention: rows of an image as batch", scale=0.25)
def fam_axial(dev, dt):
    def function(q, k, v):
        q, k, v = (t.permute(0, 3, 1, 2, 4).flatten(0, 1) for t in (q, k, v))
        out = (torch.einsum("bhid,bhjd->bhij", q, k) * 0.25).softmax(-1) @ v
        return out.unflatten(0, (B, 5)).permute(0, 2, 3, 1, 4)

    return function, qkv(dev, dt, (B, H, 7, 5, D))


@case(True, "windows of an image as two batch axes", source="Swin without its bias", scale=1.0)
def fam_windows(dev, dt):
    def function(q, k, v):
        q = q * D**-0.5
        return (q @ k.transpose(-2, -1)).softmax(dim=-1) @ v

    return function, qkv(dev, dt, (B, 3, H, 9, D))


@case(True, "6 dims", scale=0.25)
def fam_six_dims(dev, dt):
    return (lambda q, k, v: (q @ k.mT * 0.25).softmax(-1) @ v), qkv(dev, dt, (B, 1, 3, H, S, D)[:6])
