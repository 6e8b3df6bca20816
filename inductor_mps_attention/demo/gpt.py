"""A small character-level GPT in plain PyTorch: tokens go in, logits come out.

Nothing here knows of the compiler backend: attention is written as people write it, in two spellings, and it
is the backend's task to recognise both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
Model = Callable[[Tensor], Tensor]
"""A module that takes tokens, or its compiled form, which for Python's types is a function."""


def sdpa_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention by PyTorch's own function; all `(batch, heads, length, head_dim)`."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def manual_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The same written by hand, with its mask built on the spot; all `(batch, heads, length, head_dim)`."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    queries, keys = scores.shape[-2:]
    past = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril()
    return F.softmax(scores.masked_fill(past.logical_not(), float("-inf")), dim=-1) @ value


SPELLINGS: dict[str, Attention] = {"sdpa": sdpa_attention, "manual": manual_attention}


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT. `width` is a multiple of `heads`; the head dim is their quotient."""

    vocabulary: int
    layers: int = 3
    heads: int = 4
    width: int = 128
    longest: int = 128

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.width // self.heads


class SelfAttention(nn.Module):
    """Multi-head causal self-attention in one of the `SPELLINGS`: `(batch, length, width)` in and out."""

    def __init__(self, config: GPTConfig, spelling: str) -> None:
        super().__init__()
        self.config = config
        self.attention = SPELLINGS[spelling]
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        query, key, value = (
            part.view(batch, length, self.config.heads, self.config.head_dim).transpose(1, 2)
            for part in self.qkv(hidden).split(width, dim=-1)
        )
        attended = self.attention(query, key, value)
        out: Tensor = self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return out


class Block(nn.Module):
    """One pre-norm transformer layer: `(batch, length, width)` in and out."""

    def __init__(self, config: GPTConfig, spelling: str) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = SelfAttention(config, spelling)
        self.mlp_norm = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        mixed: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return mixed


class GPT(nn.Module):
    """Tokens `(batch, length)` int64 to logits `(batch, length, vocabulary)`; length <= `config.longest`."""

    positions: Tensor

    def __init__(self, config: GPTConfig, spelling: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        # Fixed positions on purpose. Stock Inductor's MPS backend (torch 2.13) computes a wrong gradient for
        # a learned position embedding: it sums over the batch in a reduction whose every thread then adds
        # the sum to the result.
        self.register_buffer("positions", sinusoids(config.longest, config.width), persistent=False)
        self.blocks = nn.Sequential(*(Block(config, spelling) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens) + self.positions[: tokens.shape[1]]
        logits: Tensor = self.head(self.norm(self.blocks(hidden)))
        return logits


def sinusoids(length: int, width: int) -> Tensor:
    """Fixed position vectors `(length, width)` float32: sines, then cosines, of falling frequencies."""
    frequencies = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * frequencies[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def next_character_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy in nats of logits `(batch, length, vocabulary)` for targets `(batch, length)`."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def seeded_gpt(config: GPTConfig, spelling: str, device: torch.device, seed: int = 0) -> GPT:
    """A GPT on `device` whose weights depend on the seed alone, not on the spelling or the device."""
    torch.manual_seed(seed)
    return GPT(config, spelling).to(device)
