"""Text encoders of transformers, and encoders with decoders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, randn

from .entry import BATCH, Entry, Inputs, generator, tokens
from .from_config import NO_DROPOUT, SIZES, TOKENS, builder

_SIZES = {**SIZES, **TOKENS, "max_position_embeddings": 64}
_BART: dict[str, Any] = {
    **TOKENS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64,
    "dropout": 0.0, "decoder_start_token_id": 2,
}  # fmt: skip
_WHISPER = {
    **_BART, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 64, "decoder_start_token_id": 1,
}  # fmt: skip
_DISTIL = {
    **TOKENS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 32, "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
_T5 = {
    **TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
    "dropout_rate": 0.0, "decoder_start_token_id": 0,
}  # fmt: skip
_MODERN_BERT = {
    "local_attention": 8, "layer_types": ["full_attention", "sliding_attention"], "cls_token_id": 1, "sep_token_id": 2,
}  # fmt: skip


def _text(length: int) -> Inputs:
    return {"input_ids": tokens(length)}


def _two_texts(length: int) -> Inputs:
    return {"input_ids": tokens(length), "decoder_input_ids": tokens(length - 3)}


def _sound(length: int) -> Tensor:
    return randn(BATCH, 8, length, generator=generator())


def _mel(length: int) -> Inputs:
    return {"input_features": _sound(32), "decoder_input_ids": tokens(length)}


def _encoder(name: str, family: str, more: dict[str, Any], **facts: Any) -> Entry:
    build = builder(f"{family}Model", f"{family}Config", {**_SIZES, **NO_DROPOUT, **more})
    return Entry(name, "transformers", build, _text, 2, padded=("attention_mask",), **facts)


def _both(name: str, family: str, given: dict[str, Any], **facts: Any) -> Entry:
    build = builder(f"{family}Model", f"{family}Config", given)
    masks = ("attention_mask", "decoder_attention_mask")
    return Entry(name, "transformers", build, _two_texts, 6, padded=masks, cache=True, **facts)


_MAIN = (
    _encoder("BERT", "Bert", {}),
    _encoder("RoBERTa", "Roberta", {}),
    _encoder("DistilBERT", "DistilBert", _DISTIL),
    _encoder("CLIP text", "CLIPText", {}),
    _encoder("SigLIP text", "SiglipText", {}),
    _both("BART", "Bart", _BART),
    _both("T5", "T5", _T5, declined=("MASK", 4)),
    Entry(
        "Whisper", "transformers", builder("WhisperModel", "WhisperConfig", _WHISPER), _mel, 6,
        padded=("decoder_attention_mask",), cache=True,
    ),
)  # fmt: skip
_FURTHER = (
    _encoder("ELECTRA", "Electra", {"embedding_size": 32}),
    _encoder("ALBERT", "Albert", {"embedding_size": 32}),
    _encoder("ModernBERT, window 8 and full", "ModernBert", _MODERN_BERT),
    _encoder("MPNet", "MPNet", {}, declined=("MASK", 2), implementations=("eager",)),
    _encoder("DeBERTa v2", "DebertaV2", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
             declined=("SCORE_MODIFIED", 2), implementations=("eager",)),
    _both("Marian", "Marian", _BART),
    _both("Pegasus", "Pegasus", _BART),
)  # fmt: skip
ENTRIES = (*_MAIN, *(replace(entry, every_way=False) for entry in _FURTHER))
