"""What can go wrong between a Metal text and its launch. Faults that check mode finds are
`simulator.errors.CheckError`.
"""

from __future__ import annotations

from ..errors import SimulatorError


class ShaderCompileError(SimulatorError):
    """The Metal text cannot be translated or compiled. `line` is the 1-based line of the text, 0 where none
    is known.
    """

    def __init__(self, message: str, line: int = 0, excerpt: str = ""):
        where = f"line {line}: " if line else ""
        super().__init__(where + message + (f"\n{excerpt}" if excerpt else ""))
        self.message = message
        self.line = line


class ShaderLaunchError(SimulatorError):
    """A kernel is called in a way that Metal does not allow: sizes, missing buffers, argument types."""


class ShaderAssertionError(SimulatorError):
    """A kernel wrote to its error buffer (TORCH_REPORT_ERROR in the Metal text)."""
