"""The C++ that Inductor writes for the mps device, as text: nothing here can compile or run it, so nothing does.

The simulated device refuses cpp_wrapper for that reason; this reads the text in spite of it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.export import ExportedProgram

from inductor_mps_attention.simulator import is_installed

_MODULE = "torch._inductor.codegen.cpp_wrapper_mps"


class NotRun(RuntimeError):
    """Raised where compiled C++ would be called."""


def cpp_texts(function: Callable[[], Any]) -> list[str]:
    """Texts of the graphs that `function` compiles, forward before backward; it must call one compiled function.

    The compiled function is not run: what it would return does not exist.
    """
    from torch._functorch import config as functorch_config
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    texts: list[str] = []

    def keep(_graph: Any, code: Any) -> types.SimpleNamespace:
        texts.append(code.value)
        return types.SimpleNamespace(call=_refuse, __file__=__file__)

    with (
        config.patch(cpp_wrapper=True, force_disable_caches=True),
        functorch_config.patch(force_non_lazy_backward_lowering=True),
        _inductors_wrapper(),
        mock.patch.object(GraphLowering, "_compile_to_module_lines", keep),
    ):
        torch._dynamo.reset()
        try:
            function()
        except NotRun:
            return texts
    raise AssertionError("the function called no compiled code")


def package_text(program: ExportedProgram) -> str:
    """The C++ of what `torch._inductor.aoti_compile_and_package` makes of an exported program; nothing is built.

    The default inductor compiles it: call this within `ima.registered()`.
    """
    from torch._inductor import config
    from torch._inductor.codecache import AotCodeCompiler

    texts: list[str] = []

    def keep(_graph: Any, wrapper: str, kernels: str, *_rest: Any, **_keywords: Any) -> Any:
        texts.append(wrapper + kernels)
        raise NotRun

    with (
        config.patch(force_disable_caches=True),
        _inductors_wrapper(),
        mock.patch.object(AotCodeCompiler, "compile", keep),
    ):
        try:
            torch._inductor.aoti_compile_and_package(program)
        except Exception:  # Inductor wraps what stops it in an error of its own
            if not texts:
                raise
    return texts[0]


@contextlib.contextmanager
def _inductors_wrapper() -> Iterator[None]:
    """A block in which C++ is written for the mps device, also where that is simulated."""
    from torch._inductor.codegen import common

    common.init_backend_registration()
    device = common.device_codegens["mps"]
    wrapper = _real_wrapper() if is_installed() else device.cpp_wrapper_codegen
    with mock.patch.object(device, "cpp_wrapper_codegen", wrapper):
        yield


def _refuse(_arguments: Any) -> Any:
    raise NotRun


def _real_wrapper() -> Any:
    """Inductor's own class: the simulated device has put a refusal in its place."""
    package = importlib.util.find_spec("torch._inductor.codegen")
    assert package is not None
    assert package.submodule_search_locations
    path = f"{package.submodule_search_locations[0]}/cpp_wrapper_mps.py"
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CppWrapperMps
