"""`fused(function, *inputs)`: the pass on a function, and its numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inductor_mps_attention.matching import fusion_pass
from tests.matching import harness


@pytest.fixture
def fused() -> Callable[..., harness.Result]:
    fusion_pass.reset_totals()
    return harness.fuse
