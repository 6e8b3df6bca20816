"""What this process has fused, declined and launched."""

from __future__ import annotations

import sys
from typing import Any


def stats() -> dict[str, Any]:
    """{"fused": n, "declined": {reason name: n}, "launches": {kernel role: n}} since the start or `reset_stats()`.

    Sites are counted when a graph goes through the pass: one that comes out of Inductor's caches is not counted again.
    """
    fused, declined = 0, {}
    # A process that has compiled nothing has counted nothing: asking must not import the compiler.
    matching = sys.modules.get(f"{__package__}.matching.fusion_pass")
    if matching is not None:
        fused, declined = matching.totals()
    runtime = sys.modules.get(f"{__package__}.runtime.tally")
    launches = runtime.launches() if runtime is not None else {}
    return {"fused": fused, "declined": declined, "launches": launches}


def reset_stats() -> None:
    """All counts back to zero."""
    matching = sys.modules.get(f"{__package__}.matching.fusion_pass")
    if matching is not None:
        matching.reset_totals()
    runtime = sys.modules.get(f"{__package__}.runtime.tally")
    if runtime is not None:
        runtime.reset_launches()
