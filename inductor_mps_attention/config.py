"""The options of the pass: one frozen value, and the one reader of `MPS_ATTENTION_*` environment variables.

The simulator's variables (`MPS_ATTENTION_SIMULATOR*`) belong to the simulator, which reads them itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from .errors import InvalidOption

PREFIX = "attention."
ENVIRONMENT = "MPS_ATTENTION_"
KINDS = ("sdpa", "manual", "mha")


@dataclass(frozen=True)
class Options:
    """How the pass behaves. In `torch.compile(options=...)` each name is prefixed with `attention.`.

    strict: an attention that is found and not fused raises `errors.Declined`; so does an internal failure.
    fuel: at most so many rewrites in this process, None for no limit: bisects a wrong result to one rewrite.
    min_seq_len: attentions with fewer keys are left alone; symbolic lengths are judged by their hint.
    key_padding: fuse masks that are provably `band & keep[b, j]`, with `keep` from an input, such as those that
        transformers builds from an `attention_mask`. Rows that see no key give what they give in eager.
    patterns: which kinds of attention are looked for: "sdpa", "manual" (hand-written), "mha".
    inner: what compiles the rest of the graph: "inductor", "aot_eager" or "eager".
    policy: "always" fuses whatever is provably right; "auto" asks the measurements of `tune`. Without measurements
        of this machine the two are the same.
    dump_dir: a folder for the graphs before and after each pass, and its report.
    """

    strict: bool = False
    fuel: int | None = None
    min_seq_len: int = 0
    key_padding: bool = False
    patterns: tuple[str, ...] = KINDS
    inner: str = "inductor"
    policy: str = "always"
    dump_dir: str | None = None

    def __post_init__(self) -> None:
        _check_bool("strict", self.strict)
        _check_bool("key_padding", self.key_padding)
        if self.fuel is not None:
            _check_count("fuel", self.fuel)
        _check_count("min_seq_len", self.min_seq_len)
        if isinstance(self.patterns, str):
            object.__setattr__(self, "patterns", (self.patterns,))
        object.__setattr__(self, "patterns", tuple(self.patterns))
        for kind in self.patterns:
            _check_choice("patterns", kind, KINDS)
        _check_choice("inner", self.inner, ("inductor", "aot_eager", "eager"))
        _check_choice("policy", self.policy, ("always", "auto"))

    def result_changing(self) -> tuple[Any, ...]:
        """The options that decide what the graph becomes; part of the pass's cache key."""
        return (self.strict, self.fuel, self.min_seq_len, self.key_padding, self.patterns, self.policy)


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InvalidOption(f"option {name} must be True or False, got {value!r}")


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidOption(f"option {name} must be an integer of 0 or more, got {value!r}")


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidOption(f"option {name} must be one of {', '.join(choices)}, got {value!r}")


def _parse(name: str, text: str) -> Any:
    """An environment variable's text as the option's type."""
    if name in ("strict", "key_padding"):
        if text.lower() not in ("0", "1", "true", "false"):
            raise InvalidOption(f"{ENVIRONMENT}{name.upper()} must be 0 or 1, got {text!r}")
        return text.lower() in ("1", "true")
    if name in ("fuel", "min_seq_len"):
        if not text.isdigit():
            raise InvalidOption(f"{ENVIRONMENT}{name.upper()} must be an integer of 0 or more, got {text!r}")
        return int(text)
    if name == "patterns":
        return tuple(part for part in text.split(",") if part)
    return text


def read_options(given: Mapping[str, Any] | None = None, environ: Mapping[str, str] = os.environ) -> Options:
    """Options from `given` (names without prefix); what is not given comes from the environment, then the default."""
    names = [field.name for field in fields(Options)]
    given = dict(given or {})
    for name in given:
        if name not in names:
            raise InvalidOption(f"unknown option {name!r}; the options are {', '.join(names)}")
    for name in names:
        text = environ.get(ENVIRONMENT + name.upper())
        if name not in given and text:
            given[name] = _parse(name, text)
    return Options(**given)


def tuned_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where `tune` writes and planners read: MPS_ATTENTION_TUNED, None if that is empty; else in the user's cache."""
    named = environ.get(ENVIRONMENT + "TUNED")
    if named is not None:
        return Path(named) if named else None
    cache = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "inductor_mps_attention" / "tuned.json"


DEFAULT_INDUCTOR_OPTIONS = tuple(PREFIX + field.name for field in fields(Options) if field.name != "inner")
"""What `torch.compile(options=...)` takes with the default inductor; `inner` is the backend's alone."""


def overridden(options: Options, given: Mapping[str, Any]) -> Options:
    """`options` with those of one compilation, which are named with their prefix. Raises InvalidOption."""
    return replace(options, **{name.removeprefix(PREFIX): value for name, value in given.items()})


def split_options(options: Mapping[str, Any] | None) -> tuple[Options, dict[str, Any]]:
    """`torch.compile(options=...)` as this package's options and the rest, which is Inductor's."""
    options = dict(options or {})
    ours = {name.removeprefix(PREFIX): options.pop(name) for name in list(options) if name.startswith(PREFIX)}
    return read_options(ours), options
