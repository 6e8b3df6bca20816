"""A model of transformers from the names of its classes: random weights, the same in each run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

from .entry import VOCABULARY

TOKENS: dict[str, Any] = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def builder(kind: str, config: str, given: dict[str, Any]) -> Callable[[str], nn.Module]:
    """kind, config: names in transformers. The builder takes the implementation, "sdpa" or "eager"."""
    return functools.partial(_make, kind, config, given)


def _make(kind: str, config: str, given: dict[str, Any], implementation: str) -> nn.Module:
    chosen = getattr(transformers, config)(**given)
    chosen._attn_implementation = implementation
    torch.manual_seed(0)
    module: nn.Module = getattr(transformers, kind)(chosen)
    return module
