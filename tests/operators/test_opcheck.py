"""torch.library.opcheck of both operators: schemas, fakes, autograd's registration, AOT dispatch on symbolic shapes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from inductor_mps_attention.operators import flash_backward, flash_forward
from tests.support.inputs import LAYOUTS, Shape, make

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BANDS = ((None, None), (None, 0), (-3, None), (-3, 2))
GRADIENTS = ([True, True, True], [True, False, False], [False, True, False], [False, False, True], [False] * 3)
CHECKS = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
"""What the device is asked; torch does not implement its check of autograd's registration for mps."""


def cases() -> list[Any]:
    """Every dtype in every layout, and on the CPU in one; bands, masks and wanted gradients take turns."""
    others = itertools.cycle(itertools.product(BANDS, (False, True), GRADIENTS))
    made = []
    places = [*itertools.product(["mps"], LAYOUTS, DTYPES), *itertools.product(["cpu"], ["packed"], DTYPES)]
    for number, (device, layout, dtype) in enumerate(places):
        band, masked, wanted = next(itertools.islice(others, 6, None))  # 7 has no factor in common with their number
        name = f"{device}-{layout}-{str(dtype).removeprefix('torch.')}-{number}"
        made.append(pytest.param(device, layout, dtype, band, masked, wanted, id=name))
    return made


@pytest.mark.parametrize(("device", "layout", "dtype", "band", "masked", "wanted"), cases())
def test_both_operators_keep_their_word(
    device: str,
    layout: str,
    dtype: torch.dtype,
    band: tuple[int | None, int | None],
    masked: bool,
    wanted: list[bool],
) -> None:
    q, k, v, grad_out = make(Shape(2, 4, 2, 7, 9, 16, 8), dtype, layout=layout, device=device)
    # Strides of a mask are free: every other row of a wider one, read backwards in memory order.
    key_mask = (torch.rand(18, 2) > 0.3).to(device).mT[:, ::2] if masked else None
    rest = (key_mask, 0.3, *band)
    checks = CHECKS if device == "mps" else (*CHECKS, "test_autograd_registration")
    torch.library.opcheck(flash_forward, (*map(leaf, (q, k, v)), *rest), test_utils=checks)
    out, logsumexp = flash_forward(q, k, v, *rest)
    torch.library.opcheck(flash_backward, (grad_out, q, k, v, out, logsumexp, *rest, wanted), test_utils=checks)


def leaf(tensor: Tensor) -> Tensor:
    """With its strides, and a gradient to be computed."""
    return tensor.detach().requires_grad_()
