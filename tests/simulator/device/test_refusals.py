"""What a real device refuses is refused here: programs that pass here must not fail there."""

from __future__ import annotations

import pytest
import torch

from inductor_mps_attention import simulator

from .support import run_python


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(
    "make",
    [
        lambda dtype: torch.zeros(2, device="mps", dtype=dtype),
        lambda dtype: torch.empty_strided((2,), (1,), device="mps", dtype=dtype),
        lambda dtype: torch.ones(2, dtype=dtype).to("mps"),
        lambda dtype: torch.ones(2, device="mps").to(dtype),
        lambda dtype: torch.ones(2, device="mps").cumsum(0, dtype=dtype),
    ],
)
def test_there_is_no_double_precision(make, dtype):
    with pytest.raises(TypeError, match="float64"):
        make(dtype)


# The CPU kernel makes doubles of any number; such a tensor must not come to be on the device.
def test_a_double_precision_result_of_a_cpu_kernel_is_refused():
    with pytest.raises(TypeError, match="float64"):
        torch.float_power(torch.ones(3, device="mps"), 2)


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, c: x + c,
        lambda x, c: c * x,
        lambda x, c: x @ c,
        lambda x, c: torch.cat([x, c]),
        lambda x, c: torch.where(x > 0, x, c),
        lambda x, c: torch.nn.functional.linear(x, c),
        lambda x, c: torch.add(x, x, out=c),
        lambda x, c: x.add_(c),
    ],
)
def test_tensors_of_two_devices_do_not_mix(mix):
    with pytest.raises(RuntimeError, match="same device"):
        mix(torch.ones(2, 2, device="mps"), torch.ones(2, 2))


def test_an_operator_without_an_mps_kernel_is_refused_by_name():
    x = torch.eye(2, device="mps")
    with pytest.raises(NotImplementedError, match=r"aten::linalg_eig' is not currently implemented for the MPS device"):
        torch.linalg.eig(x)


def test_a_library_operator_with_a_cpu_kernel_alone_is_refused():
    library = torch.library.Library("simulated_device_test", "FRAGMENT")
    library.define("cpu_only(Tensor x) -> Tensor")
    library.impl("cpu_only", torch.clone, "CPU")
    with pytest.raises(NotImplementedError, match="MPS"):
        torch.ops.simulated_device_test.cpu_only(torch.ones(2, device="mps"))
    library.define("for_mps(Tensor x) -> Tensor")
    library.impl("for_mps", torch.neg, "MPS")
    assert torch.ops.simulated_device_test.for_mps(torch.ones(2, device="mps")).tolist() == [-1, -1]


def test_pytorchs_own_variable_sends_such_operators_to_the_cpu():
    program = """
        import torch
        from inductor_mps_attention import simulator
        simulator.install()
        print(torch.linalg.eig(torch.eye(2, device="mps"))[0].device)
    """
    ran = run_python(program, PYTORCH_ENABLE_MPS_FALLBACK="1")
    assert ran.stdout == "mps:0\n", ran.stderr


def test_a_metal_capture_is_refused_by_name():
    assert not torch.mps.profiler.is_metal_capture_enabled()
    with pytest.raises(simulator.SimulatorError, match="Metal capture"), torch.mps.profiler.metal_capture("trace"):
        pass


def test_autograd_notices_a_write_to_a_saved_tensor():
    x = torch.ones(3, device="mps", requires_grad=True)
    doubled = x * 2
    result = doubled.sin()
    doubled.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        result.sum().backward()


def test_sparse_and_quantized_tensors_are_refused_and_do_not_crash():
    x = torch.eye(2, device="mps")
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    with pytest.raises((RuntimeError, NotImplementedError)):
        x.to_sparse()


def test_wrong_arguments_fail_as_on_the_cpu():
    x = torch.ones(2, 3, device="mps")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        x @ x
    with pytest.raises(IndexError, match="out of range"):
        x.sum(4)


ONE_SENTENCE = "no C\\+\\+ runtime: cpp_wrapper and AOTInductor need an MPS build"


def test_the_cpp_wrapper_is_refused_in_one_sentence():  # and not in a page of errors of the C++ compiler
    with torch._inductor.config.patch(cpp_wrapper=True), pytest.raises(RuntimeError, match=ONE_SENTENCE):
        torch.compile(torch.sin)(torch.ones(3, device="mps"))
    with torch._inductor.config.patch(cpp_wrapper=True):  # the CPU's C++ wrapper is not concerned
        assert torch.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]


def test_ahead_of_time_compilation_is_refused_in_one_sentence(tmp_path):
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(3, device="mps"),))
    with pytest.raises(RuntimeError, match=ONE_SENTENCE):
        torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))


def test_the_cpp_wrapper_is_refused_where_inductor_was_imported_first():
    program = """
        import torch
        import torch._inductor.codegen.cpp_wrapper_mps as wrapper
        from inductor_mps_attention import simulator
        simulator.install()
        try:
            wrapper.CppWrapperMps.create(False, None, None)
        except simulator.SimulatorError as error:
            print("C++ runtime" in str(error))
    """
    ran = run_python(program)
    assert ran.stdout == "True\n", ran.stderr
