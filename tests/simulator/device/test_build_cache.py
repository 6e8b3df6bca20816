"""The build cache: one library for one content, built once, never half; errors say what to do."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import pytest

from inductor_mps_attention.simulator import SimulatorError, build, settings


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("MPS_ATTENTION_SIMULATOR_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "answer.cpp"
    path.write_text('#include "answer.h"\nextern "C" int answer() { return ANSWER; }\n')
    (tmp_path / "answer.h").write_text("#define ANSWER 42\n")
    return path


def built(source: Path, **keywords) -> Path:
    return build.shared_library("answer", source, depends_on=[source.with_suffix(".h")], **keywords)


@pytest.fixture
def compilations(monkeypatch):
    """Counts the runs of the compiler."""
    seen, compile_library = [], build._compile
    monkeypatch.setattr(build, "_compile", lambda *args: (seen.append(args), compile_library(*args)))
    return seen


def test_it_is_built_once_and_works(source, compilations):
    first = built(source)
    assert ctypes.CDLL(str(first)).answer() == 42
    assert built(source) == first
    assert len(compilations) == 1
    assert first.parent == settings.cache_directory()


def test_content_decides_and_not_time_or_place(source, compilations, tmp_path):
    first = built(source)
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for name in ("answer.cpp", "answer.h"):
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    assert built(copy / "answer.cpp") == first
    source.with_suffix(".h").write_text("#define ANSWER 43\n")
    assert ctypes.CDLL(str(built(source))).answer() == 43
    assert built(source, identity=["2.14.0"]) != built(source, identity=["2.13.0"])
    assert built(source, flags=["-O2"]) != built(source)


def test_callers_at_the_same_time_build_once(source, compilations):
    results = []
    threads = [threading.Thread(target=lambda: results.append(built(source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert len(compilations) == 1


def test_a_failed_build_shows_the_compilers_words_and_leaves_nothing(source):
    source.write_text("int answer( {\n")
    with pytest.raises(SimulatorError, match=r"(?s)failed with exit status 1.*answer\.cpp.*error"):
        built(source)
    assert not [file for file in settings.cache_directory().iterdir() if file.suffix != ".lock"]


def test_without_a_compiler_the_error_says_what_to_install(source, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SimulatorError, match=r"no C\+\+ compiler .*install g\+\+"):
        built(source)


def test_a_compiler_that_does_not_run_is_named(source, monkeypatch, tmp_path):
    broken = tmp_path / "broken-compiler"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(SimulatorError, match="broken-compiler does not run"):
        built(source)


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("MPS_ATTENTION_SIMULATOR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert settings.cache_directory() == tmp_path / "inductor_mps_attention" / "simulator"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert settings.cache_directory() == Path.home() / ".cache" / "inductor_mps_attention" / "simulator"
