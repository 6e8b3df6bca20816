"""The noes that one walk collects. A walk goes on after a no wherever it still can, so that the user sees them all."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch.fx import Node

from ..errors import Reason, Rejection
from .nodes import location


class DeadEnd(Exception):
    """The walk cannot go on; its reason is already among the findings."""


def rejection(reason: Reason, message: str, node: Node | None) -> Rejection:
    """A no that a node of the graph decided."""
    return Rejection(reason, message) if node is None else Rejection(reason, message, node.name, location(node))


@dataclass
class Findings:
    rejections: list[Rejection] = field(default_factory=list)

    def add(self, rejection: Rejection | None) -> None:
        """Keeps the first of several noes that say the same."""
        if rejection is None:
            return
        if not any(old.reason is rejection.reason and old.message == rejection.message for old in self.rejections):
            self.rejections.append(rejection)

    def no(self, reason: Reason, message: str, node: Node | None = None) -> None:
        self.add(rejection(reason, message, node))

    def dead_end(self, reason: Reason, message: str, node: Node | None = None) -> DeadEnd:
        """For `raise findings.dead_end(...)`."""
        self.no(reason, message, node)
        return DeadEnd(message)
