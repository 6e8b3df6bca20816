"""Models of transformers, tiny and random: every layer fused, outputs and gradients those of eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from inductor_mps_attention.errors import Reason

SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def gpt2(implementation: str) -> torch.nn.Module:
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = transformers.GPT2Config(
        vocab_size=60, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0, **off
    )
    return build(transformers.GPT2LMHeadModel, config, implementation)


def llama(implementation: str) -> torch.nn.Module:
    return build(
        transformers.LlamaForCausalLM, transformers.LlamaConfig(**SIZES, num_key_value_heads=2), implementation
    )


def mistral(implementation: str) -> torch.nn.Module:
    config = transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=8)
    return build(transformers.MistralForCausalLM, config, implementation)


def bert(implementation: str) -> torch.nn.Module:
    return build(transformers.BertModel, transformers.BertConfig(**SIZES, **NO_DROPOUT), implementation)


def build(kind: Any, config: Any, implementation: str) -> torch.nn.Module:
    config.use_cache = False
    config._attn_implementation = implementation
    torch.manual_seed(0)
    return kind(config).train()


IDS = torch.randint(0, 50, (2, 16), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("implementation", "dynamic"), [("sdpa", False), ("eager", True)])
@pytest.mark.parametrize(
    ("model", "band"), [(gpt2, "causal"), (llama, "causal"), (mistral, "-7 <= j-i <= 0"), (bert, "full")]
)
def test_all_layers(fused, model, band, implementation, dynamic):
    result = fused(model(implementation), IDS, dynamic=dynamic).fused(2)
    result.equals_fp64(forward=5e-6, backward=2e-5)
    assert result.band() == band


@pytest.mark.parametrize(("model", "implementation"), [(bert, "sdpa"), (llama, "eager")])
def test_attention_mask_is_an_input(fused, model, implementation):
    network = model(implementation)
    call = lambda ids, attention_mask: network(ids, attention_mask=attention_mask)  # noqa: E731
    result = fused(call, IDS, torch.ones(2, 16, dtype=torch.long)).declined(Reason.MASK)
    assert "attention_mask" in result.messages()[0]
