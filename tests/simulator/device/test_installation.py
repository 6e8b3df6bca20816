"""Installing: when it happens, when it is refused, and that it costs nothing where it is not wanted."""

from __future__ import annotations

import pytest
import torch

from inductor_mps_attention import simulator
from inductor_mps_attention.simulator.device import installation

from .support import run_python

ONE_BACKWARD = """
    x = torch.ones(2, device="mps", requires_grad=True)
    x.sum().backward()
    print(x.grad.tolist())
"""


# The entry point runs in every process that imports torch.
def test_a_plain_import_of_torch_loads_nothing_of_ours():
    program = """
        import sys, torch
        print([name for name in sys.modules if name.startswith("inductor_mps_attention")])
        print("torch._inductor" in sys.modules, torch.backends.mps.is_available())
    """
    ran = run_python(program)
    assert ran.stdout.splitlines() == [
        "['inductor_mps_attention', 'inductor_mps_attention.simulator']",
        "False False",
    ], ran.stderr


def test_the_package_without_torch_loads_no_torch():
    ran = run_python("import sys, inductor_mps_attention.simulator; print('torch' in sys.modules)")
    assert ran.stdout == "False\n", ran.stderr


def test_the_environment_variable_installs_at_import():
    ran = run_python("import torch" + ONE_BACKWARD.replace("\n    ", "\n"), MPS_ATTENTION_SIMULATOR="1")
    assert ran.stdout == "[1.0, 1.0]\n", ran.stderr


@pytest.mark.parametrize("value", ["0", ""])
def test_autoload_does_nothing_when_told_not_to(value, monkeypatch):
    monkeypatch.setenv("MPS_ATTENTION_SIMULATOR", value)
    monkeypatch.setattr(installation, "install", lambda: pytest.fail("installed"))
    simulator.autoload()


def test_installing_late_works_even_after_a_backward():
    # The engine counts the devices at its first backward, the hooks are made at the first question.
    program = """
        import torch
        torch.backends.mps.is_available(), torch.accelerator.current_accelerator()
        torch.ones(2, requires_grad=True).sum().backward()
        from inductor_mps_attention import simulator
        simulator.install()
        print(torch.backends.mps.is_available())
    """ + ONE_BACKWARD.replace("\n    ", "\n        ")
    ran = run_python(program)
    assert ran.stdout == "True\n[1.0, 1.0]\n", ran.stderr


def test_a_second_install_changes_nothing():
    core, new = installation.installed_core(), torch.UntypedStorage.__new__
    simulator.install()
    assert installation.installed_core() is core
    assert torch.UntypedStorage.__new__ is new


@pytest.fixture
def not_installed(monkeypatch):
    """As before `install()`, in what Python can see."""
    monkeypatch.setattr(installation, "_core", None)
    monkeypatch.setattr(torch._C, "_has_mps", False)
    monkeypatch.setattr(installation.device_core, "load", lambda: pytest.fail("loaded the core"))


@pytest.mark.usefixtures("not_installed")
def test_a_real_mps_backend_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch._C, "_has_mps", True)
    with pytest.raises(simulator.SimulatorError, match="real MPS backend"):
        simulator.install()
    assert not simulator.is_installed()


@pytest.mark.usefixtures("not_installed")
@pytest.mark.parametrize(("platform", "words"), [("darwin", "real MPS backend"), ("win32", "needs Linux")])
def test_other_systems_are_refused(platform, words, monkeypatch):
    monkeypatch.setattr(installation.sys, "platform", platform)
    with pytest.raises(simulator.SimulatorError, match=words):
        simulator.install()


@pytest.mark.usefixtures("not_installed")
def test_a_visible_cuda_device_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(simulator.SimulatorError, match="CUDA_VISIBLE_DEVICES"):
        simulator.install()


@pytest.mark.usefixtures("not_installed")
def test_memory_questions_before_installing_name_the_remedy():
    for ask in (simulator.peak_memory, simulator.reset_peak_memory):
        with pytest.raises(simulator.SimulatorError, match=r"install\(\)"):
            ask()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        simulator.no_such_name  # noqa: B018
    assert set(simulator.__all__) <= set(dir(simulator))
