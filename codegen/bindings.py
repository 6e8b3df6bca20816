"""How the integers and the scale of one launch reach the text: as arguments of every launch, or written into it.

Without bindings a kernel serves all sizes: the integers arrive in one array, the scale as a float. With bindings the
text is made for one family of launches: each integer is a literal or an expression over a few integer arguments.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bindings:
    """What a text is specialised on. Two launches with equal bindings share one kernel."""

    arguments: tuple[str, ...]
    """Names of the integer arguments, `constant long&` each, which follow the tensors in this order."""
    values: tuple[tuple[str, str], ...]
    """Metal expression over the arguments, by parameter name; it covers every parameter that the text reads."""
    scale: float
    """The factor of the scores, a literal in the text."""

    def value(self, parameter: str) -> str:
        """The expression of one parameter. Raises KeyError for a parameter that is not bound."""
        return dict(self.values)[parameter]
