"""Everything this package raises, and the reasons for which it declines to fuse an attention."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    """Why an attention was left alone. The value is the name that `stats()` and `report.to_json()` print."""

    # Where it runs, and what it runs on.
    DEVICE = "DEVICE"
    DTYPE = "DTYPE"
    LAYOUT = "LAYOUT"
    # Is it the same function?
    MASK = "MASK"
    DROPOUT = "DROPOUT"
    SOFTMAX_AXIS = "SOFTMAX_AXIS"
    SCALE = "SCALE"
    SCORE_MODIFIED = "SCORE_MODIFIED"
    WEIGHTS_MODIFIED = "WEIGHTS_MODIFIED"
    INNER_VALUE_USED = "INNER_VALUE_USED"
    MUTATION = "MUTATION"
    CAST = "CAST"
    PRODUCT = "PRODUCT"
    REGION = "REGION"  # autocast, grad mode or functorch level changes inside the attention
    # Can a kernel do it?
    RANK = "RANK"
    SHAPE = "SHAPE"
    HEADS = "HEADS"
    HEAD_DIM = "HEAD_DIM"
    KEY_MASK = "KEY_MASK"
    THREADGROUP_MEMORY = "THREADGROUP_MEMORY"
    # Do we want it?
    SHORT = "SHORT"
    SLOWER = "SLOWER"  # than stock attention, as `tune` measured on this machine
    DISABLED = "DISABLED"
    FUEL = "FUEL"
    # Something of ours went wrong; the graph is left as it was.
    INTERNAL = "INTERNAL"


@dataclass(frozen=True)
class Rejection:
    """One no: its reason, one sentence with the limit and the value got, the graph node that decided it, and where
    the user wrote that (`file:line`).
    """

    reason: Reason
    message: str
    node: str | None = None
    location: str | None = None

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.message}"


class MPSAttentionError(RuntimeError):
    """Base class of this package's errors."""


class InvalidOption(MPSAttentionError, ValueError):
    """An option's name or value is wrong; the message names the choices."""


class UnsupportedAttention(MPSAttentionError, NotImplementedError):
    """`flash_attention` or an operator was called on something that no kernel computes."""


class Declined(MPSAttentionError):
    """With `strict=True`: an attention was found and left alone."""

    def __init__(self, rejections: tuple[Rejection, ...], location: str):
        super().__init__(f"attention at {location} is not fused: " + "; ".join(map(str, rejections)))
        self.rejections, self.location = rejections, location

    def __reduce__(self) -> tuple[type[Declined], tuple[tuple[Rejection, ...], str]]:
        return Declined, (self.rejections, self.location)


class DoubleBackwardUnsupported(MPSAttentionError, NotImplementedError):
    """The backward was differentiated."""


class KernelCompileError(MPSAttentionError):
    """A kernel's Metal text does not compile here. `text` is what was given to the compiler; the message ends in it,
    with the line numbers that compilers speak of.
    """

    def __init__(self, entry: str, complaint: str, text: str):
        lines = text.splitlines()
        width = len(str(len(lines)))
        numbered = "\n".join(f"{number:>{width}} | {line}" for number, line in enumerate(lines, 1))
        super().__init__(f"the Metal kernel {entry} does not compile: {complaint}\n{numbered}")
        self.entry, self.complaint, self.text = entry, complaint, text

    def __reduce__(self) -> tuple[type[KernelCompileError], tuple[str, str, str]]:
        return KernelCompileError, (self.entry, self.complaint, self.text)
