"""Compile errors with the user's lines, and the cache on disk: what builds a module anew, and what must not."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from inductor_mps_attention.simulator.metal import ShaderCompileError, compile_shader, compiler, toolchain

SOURCE = """#include <metal_stdlib>
using namespace metal;
constant int pace [[function_constant(0)]];
#ifndef OFFSET
#define OFFSET 0
#endif
kernel void count(device int* out, uint i [[thread_position_in_grid]]) {
  out[i] = int(i) * pace + OFFSET;
}
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of this test's own, with the shim header that is precompiled already."""
    header = toolchain.precompiled_shim(toolchain.settings.compiler(), False)
    monkeypatch.setenv("MPS_ATTENTION_SIMULATOR_CACHE", str(tmp_path))
    (tmp_path / "metal").mkdir()
    (tmp_path / "metal" / header.parent.name).symlink_to(header.parent)
    return tmp_path


@pytest.fixture
def builds(monkeypatch):
    """The sources that are really compiled."""
    sources: list[str] = []
    build = compiler._build

    def counted(request, *rest):
        sources.append(request.source)
        build(request, *rest)

    monkeypatch.setattr(compiler, "_build", counted)
    return sources


def run(library) -> list[int]:
    out = torch.zeros(3, dtype=torch.int32)
    library.count(out)
    return out.tolist()


def test_a_text_is_built_once(cache, builds):
    for _ in range(2):
        assert run(compile_shader(SOURCE, function_constants={0: 2})) == [0, 2, 4]
    assert len(builds) == 1


def test_constants_and_defines_make_other_modules(cache, builds):
    assert run(compile_shader(SOURCE, function_constants={"pace": 3})) == [0, 3, 6]
    assert run(compile_shader(SOURCE, function_constants={0: 4})) == [0, 4, 8]
    assert run(compile_shader(SOURCE, function_constants={0: 4}, defines=["OFFSET=1"])) == [1, 5, 9]
    assert len(builds) == 3


def test_a_changed_header_makes_another_module(cache, builds, tmp_path):
    header = tmp_path / "offset.h"
    source = '#include "offset.h"\n' + SOURCE
    for offset in (5, 6, 5):
        header.write_text(f"#define OFFSET {offset}\n")
        assert run(compile_shader(source, include_dirs=[str(tmp_path)])) == [offset] * 3
    assert len(builds) == 2


def test_a_build_that_failed_leaves_nothing_behind(cache, builds):
    for _ in range(2):
        with pytest.raises(ShaderCompileError):
            compile_shader(SOURCE.replace("pace +", "stop +"))
    assert len(builds) == 2
    assert not list(cache.glob("metal/*.so"))


def test_processes_that_want_one_module_build_it_once(cache):
    program = (
        "from inductor_mps_attention.simulator.metal import compile_shader, compiler\n"
        "build = compiler._build\n"
        "compiler._build = lambda *rest: (print('built'), build(*rest))\n"
        f"compile_shader({SOURCE!r})\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert "".join(outputs).count("built") == 1


ERRORS = {
    "an unknown name": ("out[i] = nothing;", "nothing"),
    "a wrong argument": ("out[i] = max(i);", "max"),
    "a missing semicolon": ("out[i] = 1", "';'"),
    "a private type": ("sometype x; out[i] = 1;", "sometype"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_compile_errors_have_the_users_line_and_text(name: str):
    statement, message = ERRORS[name]
    source = "#include <metal_stdlib>\nusing namespace metal;\n\nkernel void k(device int* out,\n"
    source += f"              uint i [[thread_position_in_grid]]) {{\n  {statement} }}\n"
    with pytest.raises(ShaderCompileError, match=message) as caught:
        compile_shader(source)
    assert caught.value.line == 6
    assert f"->    6 |   {statement}" in str(caught.value)


def test_an_error_in_the_preprocessor_has_its_line():
    with pytest.raises(ShaderCompileError, match="no/such") as caught:
        compile_shader("\n#include <no/such.h>\n")
    assert caught.value.line == 2


def test_a_translation_error_has_its_line():
    with pytest.raises(ShaderCompileError, match="\\[\\[nonsense\\]\\]") as caught:
        compile_shader("#include <metal_stdlib>\n\nkernel void k(device int* out [[nonsense]]) {}\n")
    assert caught.value.line == 3


def test_check_is_off_or_full():
    with pytest.raises(ValueError, match="check"):
        compile_shader(SOURCE, check="races")
