"""Causal language models of transformers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .entry import VOCABULARY, Entry, Inputs, tokens
from .from_config import SIZES, TOKENS, builder

_SIZES = {**SIZES, **TOKENS, "max_position_embeddings": 64}
_SHARED_HEADS = {"num_key_value_heads": 2}


def _text(length: int) -> Inputs:
    return {"input_ids": tokens(length)}


def _decoder(name: str, family: str, more: dict[str, Any], config: str = "", **facts: Any) -> Entry:
    build = builder(f"{family}ForCausalLM", f"{config or family}Config", {**_SIZES, **more})
    return Entry(name, "transformers", build, _text, 2, padded=("attention_mask",), cache=True, **facts)


_GPT2 = {
    "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
_PHI = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attention_dropout": 0.0}
_OPT = {"ffn_dim": 32, "word_embed_proj_dim": 32, "dropout": 0.0}
_GPT_NEOX = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
_GEMMA_2 = {**_SHARED_HEADS, "head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8}
_GEMMA_3 = {**_GEMMA_2, "layer_types": ["sliding_attention", "full_attention"]}
_FALCON = {"attention_dropout": 0.0, "hidden_dropout": 0.0, "new_decoder_architecture": True, "num_kv_heads": 2}
_BLOOM = {"n_layer": 2, "n_head": 4, "hidden_dropout": 0.0, "attention_dropout": 0.0}
_EXPERTS = {**_SHARED_HEADS, "num_local_experts": 2, "num_experts_per_tok": 1}
_XGLM = {
    "d_model": 32, "ffn_dim": 32, "num_layers": 2, "attention_heads": 4, "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip

_MAIN = (
    Entry(
        "GPT-2", "transformers", builder("GPT2LMHeadModel", "GPT2Config", {**TOKENS, **_GPT2}), _text, 2,
        padded=("attention_mask",), cache=True,
    ),
    _decoder("Llama", "Llama", _SHARED_HEADS),
    _decoder("Qwen 2", "Qwen2", _SHARED_HEADS),
    _decoder("Qwen 3", "Qwen3", {**_SHARED_HEADS, "head_dim": 8}),
    _decoder("Mistral, window 8", "Mistral", {**_SHARED_HEADS, "sliding_window": 8}),
    _decoder("Phi", "Phi", _PHI),
    _decoder("Gemma", "Gemma", {**_SHARED_HEADS, "head_dim": 8}),
    _decoder("Gemma 2", "Gemma2", _GEMMA_2, declined=("SCORE_MODIFIED", 2), implementations=("eager",)),
    _decoder("GPT-NeoX", "GPTNeoX", _GPT_NEOX),
    _decoder("OPT", "OPT", _OPT),
)  # fmt: skip
_FURTHER = (
    _decoder("Phi 3", "Phi3", {**_PHI, **_SHARED_HEADS}),
    _decoder("Gemma 3, window 8 and full", "Gemma3", _GEMMA_3, "Gemma3Text"),
    _decoder("GPT-J", "GPTJ", {**_GPT2, "n_inner": 32, "rotary_dim": 4}, implementations=("eager",)),
    _decoder("OLMo 2", "Olmo2", _SHARED_HEADS),
    _decoder("Cohere", "Cohere", _SHARED_HEADS),
    _decoder("StableLM", "StableLm", _SHARED_HEADS),
    _decoder("StarCoder 2", "Starcoder2", {**_SHARED_HEADS, "residual_dropout": 0.0, "embedding_dropout": 0.0}),
    _decoder("GPT-BigCode, one head of keys", "GPTBigCode", _GPT2),
    _decoder("Granite", "Granite", _SHARED_HEADS),
    _decoder("SmolLM 3", "SmolLM3", _SHARED_HEADS),
    _decoder("Mixtral", "Mixtral", _EXPERTS),
    _decoder("gpt-oss, window 8 and full", "GptOss", {**_EXPERTS, "head_dim": 8, "sliding_window": 8},
             declined=("PRODUCT", 2), implementations=("eager",)),
    _decoder("XGLM", "XGLM", _XGLM, declined=("SCORE_MODIFIED", 2), implementations=("eager",)),
    _decoder("Falcon", "Falcon", _FALCON),
    _decoder("Falcon, ALiBi", "Falcon", {**_FALCON, "alibi": True}, declined=("MASK", 2)),
    _decoder("BLOOM", "Bloom", _BLOOM, declined=("MASK", 2), implementations=("eager",)),
)  # fmt: skip
ENTRIES = (*_MAIN, *(replace(entry, every_way=False) for entry in _FURTHER))
