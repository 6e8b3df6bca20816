"""The operators as PyTorch sees them: schemas, fakes, gradients, transforms, refusals."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import inductor_mps_attention as ima
from inductor_mps_attention import simulator
from inductor_mps_attention.errors import DoubleBackwardUnsupported, UnsupportedAttention
from inductor_mps_attention.operators import flash_backward, flash_forward
from tests.support.inputs import Shape, make

BANDS = [(None, None), (None, 0), (-3, 2)]


def float64(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(("lower", "upper"), BANDS)
@pytest.mark.parametrize("masked", [False, True])
def test_reference_gradients_are_those_of_its_forward(lower: int | None, upper: int | None, masked: bool) -> None:
    q, k, v = float64(2, 4, 7, 8), float64(2, 2, 9, 8), float64(2, 2, 9, 5)
    key_mask = torch.rand(2, 9) > 0.4 if masked else None
    assert torch.autograd.gradcheck(
        lambda *qkv: flash_forward(*qkv, key_mask, 0.3, lower, upper)[0], (q, k, v), fast_mode=True
    )


@pytest.mark.parametrize("device", ["cpu", "mps"])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "offset"])
def test_fakes_promise_the_shapes_and_strides_that_come(device: str, layout: str) -> None:
    q, k, v, grad_out = make(Shape(2, 4, 2, 7, 9, 16), torch.float32, layout=layout, device=device)
    torch.library.opcheck(flash_forward, (q, k, v, None, 0.3, None, 0), test_utils=("test_schema", "test_faketensor"))
    out, logsumexp = flash_forward(q, k, v, None, 0.3, None, 0)
    for output_mask in ([True, True, True], [True, False, True]):
        arguments = (grad_out, q, k, v, out, logsumexp, None, 0.3, None, 0, output_mask)
        torch.library.opcheck(flash_backward, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_a_logsumexp_that_nobody_wants_is_empty_and_refused_where_the_backward_needs_it(device: str) -> None:
    q, k, v, _ = make(Shape(2, 4, 2, 7, 9, 16), torch.float32, device=device)
    arguments = (q, k, v, None, 0.3, None, 0)
    torch.library.opcheck(flash_forward, (*arguments, False), test_utils=("test_schema", "test_faketensor"))
    out, logsumexp = flash_forward(*arguments, False)
    assert logsumexp.shape == (0,)
    assert torch.equal(out, flash_forward(*arguments)[0])
    mapped = torch.vmap(lambda q: flash_forward(q, k, v, None, 0.3, None, 0, False)[0])(q[None])
    assert torch.equal(mapped[0], out)
    with pytest.raises(ValueError, match="the backward reads it"):
        flash_forward(q.requires_grad_(), *arguments[1:], False)


def test_aot_dispatch_with_static_and_dynamic_shapes() -> None:
    tensors = [t.requires_grad_() for t in make(Shape(1, 2, 2, 9, 9, 16), torch.float32, device="cpu")[:3]]
    torch.library.opcheck(flash_forward, (*tensors, None, 0.3, None, 0))


def test_output_keeps_the_memory_order_of_q() -> None:
    """(batch, queries, heads, head_dim) in, the same out: `transpose(1, 2).reshape` after it is a view."""
    q, k, v, _ = make(Shape(2, 4, 4, 9, 9, 16), torch.float32, layout="transposed")
    out, _ = flash_forward(q, k, v, None, 0.3, None, None)
    assert out.transpose(1, 2).is_contiguous()


def test_only_the_gradients_that_are_needed_are_computed() -> None:
    q, k, v, grad_out = make(Shape(), torch.float32)
    ima.reset_stats()
    flash_forward(q.requires_grad_(), k, v, None, 0.2, None, None)[0].backward(grad_out)
    assert ima.stats()["launches"] == {"forward": 1, "backward_delta": 1, "backward_dq": 1}
    assert k.grad is None


def test_vmap_folds_into_the_batch() -> None:
    q, k, v = (torch.randn(3, 2, 4, 7, 16, device="mps") for _ in "qkv")
    attend = lambda q, k, v: flash_forward(q, k, v, None, 0.3, None, 0)[0]  # noqa: E731
    mapped = torch.vmap(attend, in_dims=(0, 0, None))(q, k, v[0])
    assert torch.equal(mapped, torch.stack([attend(q[i], k[i], v[0]) for i in range(3)]))


def test_double_backward_is_refused_in_one_sentence() -> None:
    q, k, v = (torch.randn(1, 2, 7, 16, device="mps", requires_grad=True) for _ in "qkv")
    out = flash_forward(q, k, v, None, 0.3, None, None)[0]
    (grad,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(DoubleBackwardUnsupported, match="not implemented"):
        grad.sum().backward()


def test_logsumexp_carries_no_gradient() -> None:
    q, k, v = (torch.randn(1, 2, 7, 16, device="mps", requires_grad=True) for _ in "qkv")
    assert not flash_forward(q, k, v, None, 0.3, None, None)[1].requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q[0], k, v), "q must be"),
        (lambda q, k, v: (q, k.half(), v), "share dtype"),
        (lambda q, k, v: (q.int(), k.int(), v.int()), "dtype must be"),
        (lambda q, k, v: (q, k[:1], v), "batch"),
        (lambda q, k, v: (q, k[:, :, :3], v), "keys"),
        (lambda q, k, v: (q, k[..., :8], v), "head dim"),
        (lambda q, k, v: (q[:, :3], k[:, :2], v[:, :2]), "no multiple"),
        (lambda q, k, v: (q, k[:, :1], v), "heads"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_what_is_no_attention_is_refused_with_the_value_got(device: str, change, message: str) -> None:
    q, k, v = (torch.randn(2, 4, 7, 16, device=device) for _ in "qkv")
    with pytest.raises(ValueError, match=message):
        flash_forward(*change(q, k, v), None, 0.3, None, None)


@pytest.mark.parametrize("scale", [float("nan"), -float("inf"), 1e300, 3e38])
def test_a_scale_that_float32_cannot_hold_is_refused(scale: float) -> None:
    q, k, v = (torch.randn(1, 2, 7, 16, device="mps") for _ in "qkv")
    with pytest.raises(ValueError, match="scale must be"):
        flash_forward(q, k, v, None, scale, None, None)


@pytest.mark.parametrize("device", ["cpu", "mps"])
@pytest.mark.parametrize("wrong", ["grad_out", "out", "logsumexp"])
def test_a_backward_of_other_dtypes_is_refused_never_read_as_garbage(device: str, wrong: str) -> None:
    """The kernels read what they are given as q's dtype, and delta is written as float32."""
    q, k, v, grad_out = make(Shape(queries=9, keys=9, head_dim=16), torch.float32, device=device)
    out, logsumexp = flash_forward(q, k, v, None, 0.3, None, None)
    tensors = {"grad_out": grad_out, "q": q, "k": k, "v": v, "out": out, "logsumexp": logsumexp}
    tensors[wrong] = tensors[wrong].half()
    with pytest.raises(ValueError, match=f"{wrong} must be torch.float32"):
        flash_backward(*tensors.values(), None, 0.3, None, None, [True] * 3)


def test_gradients_that_nobody_needs_take_no_memory() -> None:
    q, k, v, grad_out = make(Shape(queries=256, keys=256), torch.float32)
    out, logsumexp = flash_forward(q, k, v, None, 0.2, None, None)

    def peak(output_mask: list[bool]) -> int:
        before = torch.mps.current_allocated_memory()
        simulator.reset_peak_memory()
        flash_backward(grad_out, q, k, v, out, logsumexp, None, 0.2, None, None, output_mask)
        return simulator.peak_memory() - before

    row_vector = logsumexp.nbytes
    assert peak([False, False, False]) < row_vector
    assert peak([True, False, False]) < q.nbytes + 2 * row_vector


def test_forward_mode_is_refused_never_zero() -> None:
    """PyTorch asks no autograd of an operator whose inputs carry only tangents: they would vanish."""
    q, k, v = (torch.randn(1, 2, 7, 16, device="mps") for _ in "qkv")
    compiled = torch.compile(lambda q: (q @ k.mT).softmax(-1) @ v, backend="mps_attention")
    for attend in (lambda q: flash_forward(q, k, v, None, 0.3, None, None)[0], compiled):
        with forward_ad.dual_level(), pytest.raises(UnsupportedAttention, match="not implemented"):
            attend(forward_ad.make_dual(q, torch.ones_like(q)))


def test_data_dependent_lengths_compile() -> None:
    def chosen(q: Tensor, keep: Tensor) -> Tensor:
        rows = q[:, :, keep.nonzero().squeeze(-1)]
        return torch.nn.functional.scaled_dot_product_attention(rows, rows, rows)

    q, keep = torch.randn(1, 2, 6, 16, device="mps"), torch.tensor([1, 0, 1, 1, 0, 1], device="mps")
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.testing.assert_close(torch.compile(chosen, backend="mps_attention")(q, keep), chosen(q, keep))
    assert ima.stats()["fused"] == 1


def test_what_no_kernel_computes_fails_when_it_is_compiled() -> None:
    compiled: list[str] = []

    def attend(q: Tensor) -> Tensor:
        return ima.flash_attention(q, q, q)

    def backend(graph_module: torch.fx.GraphModule, _: list[Tensor]):
        compiled.append("a graph")
        return graph_module.forward

    with pytest.raises(Exception, match="head dim 257"):
        torch.compile(attend, backend=backend, fullgraph=True)(torch.randn(1, 2, 5, 257, device="mps"))
    assert not compiled


@pytest.mark.parametrize("head_dim", [257, 300])
def test_a_head_dim_without_kernel_is_refused_with_the_limit(head_dim: int) -> None:
    q, k, v = (torch.randn(1, 2, 7, head_dim, device="mps") for _ in "qkv")
    with pytest.raises(UnsupportedAttention, match=str(head_dim)):
        flash_forward(q, k, v, None, 0.3, None, None)


def test_a_key_mask_that_is_no_bool_of_batch_and_keys_is_refused() -> None:
    q, k, v = (torch.randn(1, 2, 7, 16, device="mps") for _ in "qkv")
    for mask in (torch.ones(1, 7, device="mps"), torch.ones(1, 8, dtype=torch.bool, device="mps")):
        with pytest.raises(ValueError, match="key_mask must be"):
            flash_forward(q, k, v, mask, 0.3, None, None)
