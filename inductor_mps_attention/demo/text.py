"""The demo's text and its characters as numbers: a shipped file goes in, token tensors come out.

Knows nothing of models or devices: every tensor is made on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import torch
from torch import Tensor

TITLE = "Alice's Adventures in Wonderland, Lewis Carroll, 1865"


def load_text() -> str:
    """The whole book, about 148 000 ASCII characters with newlines (data/README.md names the source)."""
    return resources.files(__package__).joinpath("data/alice.txt").read_text(encoding="ascii")


@dataclass(frozen=True)
class Vocabulary:
    """The characters that a text uses, sorted; a token is a character's place among them."""

    characters: str

    @classmethod
    def of(cls, text: str) -> Vocabulary:
        """The vocabulary of `text`."""
        return cls("".join(sorted(set(text))))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> Tensor:
        """Tokens `(len(text),)` int64. Raises ValueError on a character that the vocabulary lacks."""
        unknown = sorted(set(text) - set(self.characters))
        if unknown:
            raise ValueError(f"the vocabulary has {len(self)} characters, {unknown[0]!r} is not one of them")
        token_of = {character: token for token, character in enumerate(self.characters)}
        return torch.tensor([token_of[character] for character in text], dtype=torch.int64)

    def decode(self, tokens: Tensor) -> str:
        """The text of tokens `(n,)`, the inverse of `encode`."""
        return "".join(self.characters[token] for token in tokens.tolist())


def random_windows(tokens: Tensor, batch: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random windows of the text, and the next character of each of theirs: two `(batch, length)` int64.

    The same seed gives the same windows on every device, so that two runs can be compared step by step.
    """
    last_start = len(tokens) - length - 1
    if last_start < 0:
        raise ValueError(f"a window of {length} needs {length + 1} tokens, got {len(tokens)}")
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(0, last_start + 1, (batch,), generator=generator).tolist()
    windows = torch.stack([tokens[start : start + length + 1] for start in starts])
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
