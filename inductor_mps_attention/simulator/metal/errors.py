"""What can go wrong between a Metal text and its launch. Faults that check mode finds are
`simulator.errors.CheckError`.
"""

from __future__ import annotations

from ..errors import SimulatorError


class ShaderCompileError(SimulatorError, SyntaxError):
    """The Metal text cannot be translated or compiled: a SyntaxError, as torch.mps.compile_shader raises. `line` is the
    1-based line of the text, or of the included file that the message names; 0 where none is known.
    """

    def __init__(self, message: str, line: int = 0, excerpt: str = ""):
        file = getattr(line, "file", "")
        where = f"{file + ', ' if file else ''}line {line}: " if line else ""
        text = where + message + (f"\n{excerpt}" if excerpt else "")
        super().__init__(text)
        self.msg = text
        self.message = message
        self.line = line

    def __str__(self) -> str:
        return self.msg


class UnknownKernelError(SimulatorError, AttributeError):
    """A Metal text has no kernel of a name: a RuntimeError, as torch.mps.compile_shader's libraries raise, and an
    AttributeError, as Python expects of attributes.
    """


class ShaderLaunchError(SimulatorError):
    """A kernel is called in a way that Metal does not allow: sizes, missing buffers, argument types."""


class ShaderSizeError(ShaderLaunchError, ValueError):
    """A threadgroup has more threads than the kernel allows, or none; a ValueError, as PyTorch raises."""


class ShaderAssertionError(SimulatorError):
    """A kernel wrote to its error buffer (TORCH_REPORT_ERROR in the Metal text)."""
