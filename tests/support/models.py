"""A small decoder with attention in one of two spellings, and a plain attention block on a packed projection."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SPELLINGS = ("sdpa", "manual")


def attend(q: Tensor, k: Tensor, v: Tensor, spelling: str, is_causal: bool) -> Tensor:
    """Attention as people write it; (batch, heads, length, head_dim)."""
    if spelling == "sdpa":
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]))
    if is_causal:
        unseen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril().logical_not()
        scores = scores.masked_fill(unseen, float("-inf"))
    return F.softmax(scores, dim=-1) @ v


class Attention(nn.Module):
    """Self-attention on one packed projection: (batch, length, width) -> the same."""

    def __init__(self, width: int, heads: int, spelling: str, is_causal: bool = True):
        super().__init__()
        self.heads, self.spelling, self.is_causal = heads, spelling, is_causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, 2))
        return self.out(attend(q, k, v, self.spelling, self.is_causal).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, width: int, heads: int, spelling: str, is_causal: bool):
        super().__init__()
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, spelling, is_causal)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed(self.feed_norm(x))


class Decoder(nn.Module):
    """tokens (batch, length) -> logits, or the loss where targets are given.

    Positions are fixed sinusoids. The gradient of a learned position embedding is what Inductor's own MPS backend
    computes wrongly (`atomic_add` after a reduction), whatever the attention.
    """

    def __init__(
        self,
        spelling: str,
        *,
        layers: int = 2,
        width: int = 64,
        heads: int = 4,
        vocabulary: int = 65,
        is_causal: bool = True,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, spelling, is_causal) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        x = self.embedding(tokens)
        x = x + _sinusoids(x)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _sinusoids(x: Tensor) -> Tensor:
    """(length, width), of x's dtype. Attention Is All You Need (arXiv:1706.03762), section 3.5."""
    position = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)[:, None]
    rate = torch.exp(
        torch.arange(0, x.shape[2], 2, device=x.device, dtype=torch.float32) * (-math.log(1e4) / x.shape[2])
    )
    return torch.cat([torch.sin(position * rate), torch.cos(position * rate)], 1).to(x.dtype)
