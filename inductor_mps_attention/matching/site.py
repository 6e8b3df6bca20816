"""What the user is told about one attention: fused or not, why not, and where it is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import Rejection
from ..spec import AttentionSpec

SiteKind = Literal["sdpa", "manual", "mha"]


@dataclass(frozen=True)
class Site:
    """One attention of a graph.

    `reasons` is empty iff it is fused; `spec` is None when too little of it was understood. `note`: what becomes of
    it instead, where that is known.
    """

    fused: bool
    kind: SiteKind
    reasons: list[Rejection] = field(default_factory=list)
    spec: AttentionSpec | None = None
    location: str = "<unknown>"
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "fused": self.fused,
            "kind": self.kind,
            "reasons": [
                {"reason": r.reason.value, "message": r.message, "node": r.node, "location": r.location}
                for r in self.reasons
            ],
            "spec": None if self.spec is None else self.spec.to_json(),
            "location": self.location,
            "note": self.note,
        }
