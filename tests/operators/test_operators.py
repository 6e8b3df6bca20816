"""The operators as PyTorch sees them: schemas, fakes, gradients, transforms, refusals."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import inductor_mps_attention as ima
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
    with pytest.raises((ValueError, RuntimeError), match=message):
        flash_forward(*change(q, k, v), None, 0.3, None, None)


def test_a_scale_that_is_not_finite_is_refused() -> None:
    q, k, v = (torch.randn(2, 4, 7, 16, device="mps") for _ in "qkv")
    with pytest.raises(ValueError, match="scale must be finite"):
        flash_forward(q, k, v, None, float("inf"), None, None)


@pytest.mark.parametrize("head_dim", [20, 136])
def test_a_head_dim_without_kernel_is_refused_with_the_limit(head_dim: int) -> None:
    q, k, v = (torch.randn(1, 2, 7, head_dim, device="mps") for _ in "qkv")
    with pytest.raises(UnsupportedAttention, match=str(head_dim)):
        flash_forward(q, k, v, None, 0.3, None, None)


def test_a_key_mask_on_the_device_is_refused_never_ignored() -> None:
    q, k, v = (torch.randn(1, 2, 7, 16, device="mps") for _ in "qkv")
    with pytest.raises(UnsupportedAttention, match="key_mask"):
        flash_forward(q, k, v, torch.ones(1, 7, dtype=torch.bool, device="mps"), 0.3, None, None)
