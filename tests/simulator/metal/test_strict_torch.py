"""Strict mode is silent on Metal text that torch ships or writes: every Mac compiles it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from inductor_mps_attention import simulator

HEADERS = ("utils", "special_math", "reduction_utils", "random", "atomic", "error", "indexing", "igamma", "expm1f")

PROGRAMS = {
    "softmax": lambda x: torch.softmax(x * 2, -1),
    "layer norm in half": lambda x: F.layer_norm(x.half(), (96,)),
    "variance and argmax": lambda x: (x.var(-1), x.argmax(-1)),
    "special functions": lambda x: torch.erf(x) + torch.lgamma(x.abs() + 1) + torch.special.i0(x),
}


def assert_silent(texts: tuple[str, ...]) -> None:
    assert texts, "no shader was compiled"
    for text in texts:
        assert [str(report) for report in simulator.check_strict(text, own=False)] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_inductors_shaders_break_no_rule(name: str):
    simulator.reset_shaders()
    torch.compile(PROGRAMS[name])(torch.randn(8, 96).to("mps"))
    assert_silent(simulator.shaders())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_flex_attention_template_breaks_no_rule(dtype: torch.dtype):
    q, k, v = (torch.randn(1, 2, 128, 64, dtype=dtype).to("mps") for _ in range(3))
    mask = create_block_mask(lambda b, h, row, column: row >= column, 1, 1, 128, 128, device="mps")
    simulator.reset_shaders()
    torch.compile(flex_attention)(q, k, v, score_mod=lambda s, b, h, row, column: s * 2 + h, block_mask=mask)
    assert_silent(simulator.shaders())


def test_torchs_headers_break_no_rule():
    source = "#include <metal_stdlib>\n" + "".join(f"#include <c10/metal/{name}.h>\n" for name in HEADERS)
    assert_silent((source,))
