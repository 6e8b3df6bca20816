"""What users install: the wheel's content, the lazy import, the entry points."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python(code: str, cwd: Path, **environment: str) -> str:
    """What a fresh interpreter prints."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "inductor_mps_attention", "codegen"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for path in tracked.stdout.split():
        place = path if path.startswith("inductor_mps_attention") else f"inductor_mps_attention/{path}"
        assert place in names, f"{path} is not in the wheel"
    assert not [name for name in names if name.startswith("codegen")], "a bare codegen would land in site-packages"


def test_the_wheel_renders_kernels_from_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(target)
    code = (
        "import inductor_mps_attention.codegen as c; print(c.__file__);"
        "print(len(c.render(c.plan(c.Problem('float32', 64, 64, False, True, True), c.Role.FORWARD)).text) > 500)"
    )
    printed = python(code, tmp_path, PYTHONPATH=str(target), TORCH_DEVICE_BACKEND_AUTOLOAD="0").splitlines()
    assert printed == [str(target / "inductor_mps_attention/codegen/__init__.py"), "True"]


def test_no_bare_codegen_is_importable(tmp_path: Path) -> None:
    assert python("import importlib.util as u; print(u.find_spec('codegen'))", tmp_path) == "None"


def test_codegen_needs_no_torch(tmp_path: Path) -> None:
    code = "import inductor_mps_attention.codegen, sys; print('torch' in sys.modules)"
    assert python(code, tmp_path) == "False"


def test_importing_torch_imports_nothing_of_ours_but_the_entry_point(tmp_path: Path) -> None:
    code = (
        "import torch, sys;"
        "ours = ('inductor_mps_attention', 'torch._inductor', 'torch._dynamo.');"
        "print(sorted(m for m in sys.modules if m.startswith(ours)))"
    )
    environment = {name: "" for name in os.environ if name.startswith("MPS_ATTENTION")}
    printed = python(code, tmp_path, **environment)
    assert printed == "['inductor_mps_attention', 'inductor_mps_attention.simulator']"


def test_importing_the_package_does_not_import_torch(tmp_path: Path) -> None:
    assert python("import inductor_mps_attention, sys; print('torch' in sys.modules)", tmp_path) == "False"


def test_every_public_name_is_there(tmp_path: Path) -> None:
    code = "import inductor_mps_attention as ima; print(all(getattr(ima, name) is not None for name in dir(ima)))"
    assert python(code, tmp_path) == "True"
    code = "import inductor_mps_attention.explanation, inductor_mps_attention as ima; print(callable(ima.explain))"
    assert python(code, tmp_path) == "True"


def test_the_backend_is_listed_once() -> None:
    found = [e.value for e in entry_points(group="torch_dynamo_backends") if e.name == "mps_attention"]
    assert found == ["inductor_mps_attention.backend:mps_attention"]
