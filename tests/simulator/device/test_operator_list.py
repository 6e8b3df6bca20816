"""Which operators a real build has kernels for, by PyTorch's list. A PyTorch that changes it must be noticed."""

from __future__ import annotations

import pytest
import torch

from inductor_mps_attention.simulator.device.operators import supported_operators

# Operators with an MPS and no CPU kernel. Those with a kernel of the simulated device's own:
PROVIDED = {
    "aten::_fused_rms_norm",
    "aten::_lstm_mps",
    "aten::_scaled_dot_product_attention_math_for_mps",
    "aten::linear",
    "aten::linear_backward",
    "aten::lstm_mps_backward",
    "aten::max_pool2d",
    "aten::max_pool2d_backward",
}
# Made of other operators everywhere else, and here:
COMPOSITE = {"aten::constant_pad_nd", "aten::permute", "aten::repeat"}
if torch.__version__ >= "2.15":
    PROVIDED.add("aten::record_stream")
    COMPOSITE.add("aten::_grouped_mm")
# Not simulated; a convolution and a copy reach the device by other operators.
REFUSED = {
    "aten::_convert_weight_to_int4pack",
    "aten::_copy_from",
    "aten::_copy_from_and_resize",
    "aten::_mps_convolution",
    "aten::_mps_convolution_transpose",
    "aten::_weight_int4pack_mm",
    "aten::mps_convolution_backward",
    "aten::mps_convolution_transpose_backward",
}


def has_kernel(name, key):
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def test_operators_with_an_mps_kernel_alone_are_the_known_ones():
    alone = {name for name in supported_operators() if not has_kernel(name, "CPU")}
    assert alone == PROVIDED | COMPOSITE | REFUSED


def test_each_of_them_has_its_kernel_here():
    assert all(has_kernel(name, "MPS") for name in PROVIDED | REFUSED)


def test_what_is_not_simulated_says_so():
    with pytest.raises(NotImplementedError, match=r"_convert_weight_to_int4pack.* not simulated"):
        torch.ops.aten._convert_weight_to_int4pack(torch.ones(8, 8, dtype=torch.uint8, device="mps"), 2)


@pytest.mark.parametrize(
    ("name", "runs_on_mps"),
    [
        ("aten::add.out", True),
        ("aten::index_select", True),
        ("aten::linalg_eig", False),
        ("aten::col2im", True),
    ],
)
def test_the_list_is_read_right(name, runs_on_mps):
    names = set(supported_operators())
    assert (name in names) == runs_on_mps
    assert len(names) > 400
