"""The package's options as settings of Inductor's, so that `torch.compile(options={"attention.…": …})` takes them.

Inductor refuses a setting that it does not know, and its cache keys cover all that it knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch._inductor.config as inductor_config
from torch.utils import _config_module

# Inductor's own table of its settings; the module offers no way to add one.
_settings: dict[str, Any] = inductor_config._config  # type: ignore[attr-defined]


def declare(names: Iterable[str]) -> None:
    """Makes the names settings of Inductor's; None, the default, is "as registered". Names known already stay."""
    for name in names:
        if name not in _settings:
            setting: Any = _config_module._Config(default=None, value_type=object)
            _settings[name] = _config_module._ConfigEntry(setting, name)


def state(name: str, value: str) -> None:
    """A setting that says what something is, and so is part of all cache keys of Inductor's.

    Those of the pass's uuid are not enough: it is left out where another pass has none, and where the operators are
    called by the user.
    """
    setting: Any = _config_module._Config(default=value, value_type=object)
    _settings[name] = _config_module._ConfigEntry(setting, name)
    setattr(inductor_config, name, value)  # Inductor keeps its table's dict, less what was set since


def given(names: Iterable[str]) -> dict[str, Any]:
    """Those of the declared settings that this compilation was given, by name."""
    known = (name for name in names if name in _settings)
    return {name: value for name in known if (value := getattr(inductor_config, name)) is not None}
