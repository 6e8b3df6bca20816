"""What the pass found in a program, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import Rejection
from .matching.site import Site

__all__ = ["Report", "Site"]

_COLUMNS = ("", "kind", "shape (B H Sq Sk D)", "band", "where")


@dataclass(frozen=True)
class Report:
    """The attentions of all graphs that were captured, in the order of their code.

    graphs: how many graphs Dynamo captured; 0 means that nothing could be looked at.
    """

    sites: list[Site] = field(default_factory=list)
    graphs: int = 0

    @property
    def fused(self) -> int:
        """How many sites are replaced by the fused operator."""
        return sum(site.fused for site in self.sites)

    @property
    def declined(self) -> int:
        """How many sites are left alone."""
        return len(self.sites) - self.fused

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings."""
        return {
            "graphs": self.graphs,
            "fused": self.fused,
            "declined": self.declined,
            "sites": [site.to_json() for site in self.sites],
        }

    def __str__(self) -> str:
        head = f"{self.fused} of {len(self.sites)} attentions fused, in {self.graphs} graph{'s' * (self.graphs != 1)}"
        if not self.sites:
            return head
        rows = [_COLUMNS, *(_row(site) for site in self.sites)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
        lines = [head]
        for row, site in zip(rows, [None, *self.sites], strict=True):
            lines.append("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
            if site is not None and not site.fused:
                lines.extend(f"          {reason}{_elsewhere(reason, site)}" for reason in site.reasons)
                lines.extend([f"          note: {site.note}"] if site.note else [])
        return "\n".join(lines)


def _row(site: Site) -> tuple[str, ...]:
    verdict, location = "fused" if site.fused else "declined", _short(site.location)
    if site.spec is None:
        return verdict, site.kind, "-", "-", location
    spec = site.spec
    heads = (
        str(spec.heads)
        if spec.heads is spec.kv_heads or spec.heads == spec.kv_heads
        else f"{spec.heads}/{spec.kv_heads}"
    )
    dims = str(spec.qk_head_dim) if spec.qk_head_dim == spec.v_head_dim else f"{spec.qk_head_dim}/{spec.v_head_dim}"
    shape = f"{spec.batch} {heads} {spec.q_len} {spec.kv_len} {dims} {str(spec.dtype).removeprefix('torch.')}"
    return verdict, site.kind, shape, str(spec.band), location


def _elsewhere(reason: Rejection, site: Site) -> str:
    """Where the user wrote what decided, if that is not the line of the attention."""
    return "" if reason.location in (None, "<unknown>", site.location) else f" ({_short(str(reason.location))})"


def _short(location: str) -> str:
    """A path as a person knows it: from site-packages or from the working directory on, where it lies there."""
    _, installed, module = location.rpartition("site-packages/")
    return module if installed else location.removeprefix(f"{Path.cwd()}/")
