"""Factories, views, in-place and out= writes, copies: values, strides and shared memory as on the CPU."""

from __future__ import annotations

import pytest
import torch

from .support import assert_same

FACTORIES = {
    "zeros": lambda **kw: torch.zeros(2, 3, **kw),
    "full": lambda **kw: torch.full((2, 3), 7, **kw),
    "arange": lambda **kw: torch.arange(2, 11, 3, **kw),
    "linspace": lambda **kw: torch.linspace(0, 1, 5, **kw),
    "eye": lambda **kw: torch.eye(3, **kw),
    "tensor": lambda **kw: torch.tensor([[1.5, 2], [3, 4]], **kw),
    "tril_indices": lambda **kw: torch.tril_indices(3, 3, **kw),
    "like": lambda **kw: torch.ones_like(torch.zeros(3, 2, **kw).t()),
    "new": lambda **kw: torch.zeros(3, **kw).new_full((2, 2), 5),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name):
    assert_same(FACTORIES[name](device="mps"), FACTORIES[name](device="cpu"))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.bool, torch.complex64]
)
def test_copies_keep_values_dtype_and_strides(dtype):
    x = torch.randn(4, 3).mul(3).to(dtype).t()
    there = x.to("mps")
    assert_same(there, x)
    assert_same(there.clone(), x.clone())
    assert_same(there.contiguous(), x.contiguous())
    assert torch.equal(there.cpu(), x)
    assert torch.equal(torch.empty_like(x).copy_(there), x)
    assert there.tolist() == x.tolist()


# The result of a boxed call was a device tensor over CPU memory.
def test_copy_into_a_cpu_tensor_returns_that_tensor():
    with torch.inference_mode():  # elsewhere autograd's kernel returns the argument itself
        target = torch.zeros(3)
        result = torch.ops.aten.copy_.default(target, torch.ones(3, device="mps"))
    assert result.device.type == "cpu"
    assert target.tolist() == [1, 1, 1]


def test_views_share_memory_and_see_later_writes():
    def writes(x):
        x.t()[1:, ::2].add_(1)
        x.unfold(0, 2, 2)[0].mul_(3)
        x.diagonal().fill_(9)
        x.view(2, 8)[1, :3] = 5
        x.as_strided((2, 2), (1, 4), 3).neg_()
        return x

    assert_same(writes(torch.ones(4, 4, device="mps")), writes(torch.ones(4, 4)))


def test_a_result_that_aliases_its_argument_is_the_same_memory():
    x = torch.zeros(6, device="mps")
    assert x.expand(2, 6).data_ptr() == x.data_ptr()
    assert x.narrow(0, 2, 3).data_ptr() == x.data_ptr() + 8
    assert x.view(torch.int32).untyped_storage().data_ptr() == x.data_ptr()
    assert x.detach().is_set_to(x)
    assert torch.view_as_complex(x.view(3, 2)).data_ptr() == x.data_ptr()


def test_out_is_resized_and_written_in_place():
    x, out = torch.ones(4, 4, device="mps"), torch.empty(0, device="mps")
    assert torch.add(x, 1, out=out) is out
    assert out.shape == (4, 4)
    strided = torch.zeros(4, 8, device="mps")[:, ::2]
    torch.mul(x, 3, out=strided)
    assert_same(strided, torch.full((4, 8), 3.0)[:, ::2])


def test_set_and_resize_change_the_tensor_itself():
    x = torch.arange(6.0, device="mps")
    assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    assert x.resize_(8).untyped_storage().nbytes() == 32
    other = torch.full((3,), 4.0, device="mps")
    x.set_(other)
    other.add_(1)
    assert x.tolist() == [5, 5, 5]
    x.data = torch.zeros(2, device="mps")
    assert x.shape == (2,)


def test_channels_last_and_transposed_results_keep_their_strides():
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert_same(image.to("mps") + 1, image + 1)
    convolution = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    expected = convolution(image)
    assert_same(convolution.to("mps")(image.to("mps")), expected)


def test_indexing_with_tensors_of_both_devices():
    x, index = torch.arange(12.0).view(3, 4), torch.tensor([2, 0])
    there = x.to("mps")
    assert_same(there[index], x[index])
    assert_same(there[index.to("mps")], x[index])
    assert_same(there[there > 4], x[x > 4])
    there[index] = torch.tensor(1.0)
    there[:, 1] = 7
    x[index] = 1
    x[:, 1] = 7
    assert_same(there, x)


def test_a_cpu_scalar_tensor_mixes_with_the_device_and_does_not_promote():
    x = torch.ones(2, dtype=torch.float16, device="mps")
    assert (x * torch.tensor(2.0)).dtype == torch.float16
    assert (torch.tensor(2.0) - x).is_mps


def test_scalars_reach_python():
    x = torch.tensor([3.0], device="mps")
    assert x.item() == 3
    assert bool(x > 2)
    assert f"{x}" == "tensor([3.], device='mps:0')"
    assert torch.equal(x, x.clone())
    assert torch.nonzero(torch.tensor([0, 1, 1], device="mps")).tolist() == [[1], [2]]


def test_foreach_operators_take_lists():
    xs = [torch.ones(2, device="mps"), torch.ones(3, device="mps")]
    torch._foreach_add_(xs, 1)
    assert [x.tolist() for x in torch._foreach_mul(xs, 2)] == [[4, 4], [4, 4, 4]]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.float16, torch.bool])
def test_weighted_counts_never_need_double_precision(dtype):
    values, weights = torch.tensor([0, 2, 2, 1]), torch.tensor([1, 0, 3, 2]).to(dtype)
    counts = torch.bincount(values.to("mps"), weights.to("mps"), minlength=5)
    assert counts.dtype == (dtype if dtype.is_floating_point else torch.int32)
    torch.testing.assert_close(counts.cpu().double(), torch.bincount(values, weights, minlength=5).double())
