"""KernelPlan -> Metal text. Knows no torch, graphs or devices: the same plan and bindings give the same bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import jinja2

from .bindings import Bindings
from .literals import literal
from .plan import KernelPlan

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class KernelSource:
    """A whole Metal file with one kernel. `digest` is the SHA-256 of the text, in hex."""

    text: str
    entry: str
    digest: str

    @classmethod
    def of(cls, text: str, entry: str) -> KernelSource:
        return cls(text, entry, hashlib.sha256(text.encode("ascii")).hexdigest())


@lru_cache(maxsize=512)
def render(plan: KernelPlan, bindings: Bindings | None = None, entry: str | None = None) -> KernelSource:
    """The Metal text of `plan`: ASCII, Metal 3.1 to 4.1, one kernel named `entry`, or `plan.entry` without a name.

    `bindings` writes sizes, strides and scale into the text; without them they are arguments of each launch.
    """
    entry = entry or plan.entry
    template = _environment().get_template(f"{plan.role.value}.metal.jinja")
    text = template.render(plan=plan, bindings=bindings, entry=entry)
    return KernelSource.of(text, entry)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=_printed,
    )


def _printed(value: object) -> object:
    """Every number that a template prints goes through `literal`."""
    return literal(value) if isinstance(value, (bool, int, float)) else value
