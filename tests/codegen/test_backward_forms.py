"""Every form of the backward kernels, whatever the plan table chooses: values, races, schedules, masks, counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from inductor_mps_attention.codegen import KernelPlan, Problem, Role, ranking, render
from inductor_mps_attention.codegen.tiles import Tiling
from torch import Tensor

from inductor_mps_attention.simulator import CheckError
from tests.support import budgets, inputs, oracle

from .launching import Band, counters, launch, library
from .plans import BACKWARD, FORMS, barriers, made

GRADIENTS = {"grad_q": "dq", "grad_k": "dk", "grad_v": "dv"}
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
WINDOW = Band(-30, 9)
MASKED_FORMS = (
    "two fragments, two blocks",
    "a tile of more rows than lanes",
    "once",
    "two share",
    "four share",
    "direct",
)
FORMS_OF_ONE = ("twice", "once, prefetched", "two share", "four share", "direct")
BARRIER_FORMS = ("twice", "once", "once, double buffered", "two share", "four share, double buffered")


class Attention:
    """One attention with its forward done, whose backward kernels can be launched again in any form."""

    def __init__(self, shape: inputs.Shape, dtype: torch.dtype, band: Band, key_mask: Tensor | None = None) -> None:
        self.band, self.dtype = band, dtype
        self.scale = shape.head_dim**-0.5
        self.tensors = dict(zip(("q", "k", "v", "grad_out"), inputs.make(shape, dtype, device="cpu"), strict=True))
        q, v = self.tensors["q"], self.tensors["v"]
        masked = key_mask is not None
        self.problem = Problem(
            str(dtype).removeprefix("torch."),
            q.shape[-1],
            v.shape[-1],
            has_lower=band.lower is not None,
            has_upper=band.upper is not None,
            aligned=True,
            key_mask=masked,
        )
        bounds = {"lower": band.lower, "upper": band.upper, "key_mask": key_mask}
        self.expected = oracle.attention(*self.tensors.values(), scale=self.scale, **bounds)
        if masked:
            self.tensors["key_mask"] = key_mask
        self.tensors["out"] = torch.empty_like(self.tensors["grad_out"])
        self.tensors |= {name: torch.empty(q.shape[:-1]) for name in ("logsumexp", "delta")}
        for role in (Role.FORWARD, Role.BACKWARD_DELTA):
            self.launch(made(self.problem, role))

    def launch(self, plan: KernelPlan, check: str = "off", order: str = "forward", text: str = "") -> dict[str, int]:
        text = text or render(plan).text
        return launch(plan, self.tensors, self.scale, self.band, text, check, order)

    def backward(self, tiling: Tiling, check: str = "off", order: str = "forward", **wanted: bool) -> dict[str, Tensor]:
        """Both kernels, outputs full of NaN before."""
        for name in ("q", "k", "v"):
            self.tensors[f"grad_{name}"] = torch.full_like(self.tensors[name], torch.nan)
        for role in BACKWARD:
            self.launch(made(self.problem, role, tiling=tiling, **wanted), check, order)
        return {name: self.tensors[name] for name in GRADIENTS}

    def compare(self, got: dict[str, Tensor]) -> None:
        for name, tensor in got.items():
            budgets.check(name, tensor, getattr(self.expected, GRADIENTS[name]), budgets.BACKWARD[self.dtype])


@pytest.fixture(scope="module")
def ragged() -> Attention:
    """Grouped heads, two tiles and more each way, head dims that are not whole for any sharing, empty rows."""
    return Attention(inputs.Shape(1, 4, 2, 70, 90, 40, v_head_dim=72), torch.float16, WINDOW)


@pytest.fixture(scope="module")
def masked() -> Attention:
    keys = torch.rand(1, 90, generator=torch.Generator().manual_seed(3)) < 0.5
    keys[:, 16:56] = False  # whole tiles and whole blocks
    return Attention(inputs.Shape(1, 2, 1, 70, 90, 20, v_head_dim=33), torch.bfloat16, Band(upper=5), keys)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_float64_and_nothing_races(ragged: Attention, form: str):
    ragged.compare(ragged.backward(FORMS[form], check="full"))


@pytest.mark.parametrize("form", MASKED_FORMS)
def test_a_key_mask_in_every_form(masked: Attention, form: str):
    got = masked.backward(FORMS[form], check="full")
    masked.compare(got)
    hidden = ~masked.tensors["key_mask"]
    assert not got["grad_k"][:, :, hidden[0]].any()
    assert not got["grad_v"][:, :, hidden[0]].any()


@pytest.mark.parametrize("form", FORMS_OF_ONE)
def test_one_of_two_gradients_in_every_form(ragged: Attention, form: str):
    """A frozen k or v: the other's gradient has the bits that it has beside it, unless simdgroups shared the work."""
    both = ragged.backward(FORMS[form])
    for wanted, name, other in (("key_grad", "grad_v", "grad_k"), ("value_grad", "grad_k", "grad_v")):
        got = ragged.backward(FORMS[form], **{wanted: False})
        assert got[other].isnan().all(), f"{other} is written though nobody wants it"
        ragged.compare({name: got[name]})
        if FORMS[form].sharing == 1:
            assert torch.equal(got[name], both[name])


@pytest.mark.parametrize("form", FORMS)
def test_the_order_of_threads_changes_no_bit(ragged: Attention, form: str):
    first = ragged.backward(FORMS[form])
    for order in ("reverse", "random:7"):
        other = ragged.backward(FORMS[form], order=order)
        assert all(torch.equal(first[name], other[name]) for name in GRADIENTS), order


@pytest.mark.parametrize("form", BARRIER_FORMS)
@pytest.mark.parametrize("role", BACKWARD)
def test_every_missing_barrier_is_reported(ragged: Attention, role: Role, form: str):
    plan = made(ragged.problem, role, tiling=FORMS[form])
    pieces = render(plan).text.split(BARRIER)
    assert len(pieces) == barriers(plan) + 1
    for place in range(barriers(plan)):
        text = BARRIER.join(pieces[: place + 1]) + BARRIER.join(pieces[place + 1 :])
        with pytest.raises(CheckError):
            ragged.launch(plan, "full", text=text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("role", BACKWARD)
def test_the_counts_of_the_ranking_are_those_of_the_engine(role: Role, form: str):
    plan = made(Problem("float16", 64, 64, aligned=True), role, tiling=FORMS[form])
    ran, expected = counters(plan, length=128, check="full"), ranking.counts(plan)
    products = ran["products"]
    rows = -(-128 // plan.block_rows) * plan.block_rows  # a block past the end is multiplied, too
    assert products == rows // 8 * (128 // 8) * plan.block_products // plan.tiling.row_fragments
    if not plan.tiling.direct:
        assert ran["threadgroup_bytes_read"] / products == pytest.approx(expected.read_bytes)
        assert ran["barriers"] * plan.tiling.simdgroups / products == pytest.approx(expected.barriers)
    assert ran["shuffles"] / products == pytest.approx(expected.shuffles)


@pytest.mark.parametrize("head_dims", [(256, 256), (180, 256)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_one_gradient_of_the_largest_heads(dtype: torch.dtype, head_dims: tuple[int, int]):
    """Simdgroups share its rows, all with parts of the one gradient: nothing may spill, no part may be left out."""
    attention = Attention(inputs.Shape(1, 2, 1, 20, 40, head_dims[0], v_head_dim=head_dims[1]), dtype, Band(upper=3))
    for name, wanted in (("grad_k", {"value_grad": False}), ("grad_v", {"key_grad": False})):
        plan = made(attention.problem, Role.BACKWARD_DKV, **wanted)
        assert plan.tiling.sharing > 1
        attention.tensors[name] = torch.full_like(attention.tensors[name.removeprefix("grad_")], torch.nan)
        attention.launch(plan, "full")
        attention.compare({name: attention.tensors[name]})


@pytest.mark.parametrize("head_dims", [(256, 1), (8, 129)])
def test_head_dims_far_apart(head_dims: tuple[int, int]):
    """Simdgroups that share rows by the larger one have no part of the smaller."""
    shape = inputs.Shape(1, 2, 1, 33, 41, head_dims[0], v_head_dim=head_dims[1])
    attention = Attention(shape, torch.float16, Band(-20, 3))
    attention.tensors |= {f"grad_{name}": torch.full_like(attention.tensors[name], torch.nan) for name in "qkv"}
    for role in BACKWARD:
        attention.launch(made(attention.problem, role), "full")
    attention.compare({name: attention.tensors[name] for name in GRADIENTS})


def test_a_row_that_sees_one_key_alone_has_gradients_of_zero():
    """Its weight is 1 whatever the score: what is left are roundings, unless delta is made as its products are."""
    attention = Attention(inputs.Shape(1, 2, 2, 40, 40, 64), torch.float32, Band(0, 0))
    for form in ("twice", "once", "two share"):
        got = attention.backward(FORMS[form])
        assert not got["grad_q"].any()
        assert not got["grad_k"].any()
        assert torch.equal(got["grad_v"], attention.tensors["grad_out"])


@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_one_hot_rows_of_large_scores_keep_the_weight_of_eager(head_dim: int):
    """float32 scores in the thousands: a logsumexp in other units than the scores' is 1e-4 off, and grad_v with it."""
    shape = inputs.Shape(1, 2, 2, 40, 40, head_dim)
    q, k, v, grad_out = inputs.make(shape, torch.float32, device="cpu")
    q = 60 * head_dim**0.5 * k.roll(1, 2)  # row i sees key i - 1
    attention = Attention(shape, torch.float32, Band())
    attention.tensors |= {"q": q.contiguous(), "k": k, "v": v, "grad_out": grad_out}
    for role in (Role.FORWARD, Role.BACKWARD_DELTA, *BACKWARD):
        attention.tensors |= {f"grad_{name}": torch.empty_like(attention.tensors[name]) for name in ("q", "k", "v")}
        attention.launch(made(attention.problem, role))
    assert torch.equal(attention.tensors["grad_v"], grad_out.roll(-1, 2))


def test_a_masked_tile_of_more_than_32_keys():
    """Bits of its keys lie in two words."""
    keys = torch.arange(90)[None] % 3 != 0
    attention = Attention(inputs.Shape(1, 2, 2, 70, 90, 32), torch.float16, Band(), keys)
    for tiling in (Tiling(2, 1, 64), replace(Tiling(2, 1, 64), unrolled=True)):
        attention.compare(attention.backward(tiling, check="full"))


def test_forms_compile_to_different_texts():
    assert library.cache_info() is not None
    plans = [made(Problem("float16", 40, 72), role, tiling=tiling) for role in BACKWARD for tiling in FORMS.values()]
    assert len({render(plan).digest for plan in plans}) == len({plan.entry for plan in plans})
