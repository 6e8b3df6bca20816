"""The first use of compiled attention: by many threads at once, with a text that does not compile, in a new process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import inductor_mps_attention as ima
from inductor_mps_attention import runtime
from inductor_mps_attention.errors import KernelCompileError

THREADS = 8
EACH_ONCE = dict.fromkeys(("forward", "backward_delta", "backward_dq", "backward_dkv"), 1)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def written_by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT * 0.2).softmax(-1) @ v


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each text of ours is compiled during a test that starts with none."""
    texts: Counter[str] = Counter()
    compile_shader = torch.mps.compile_shader

    def counted(text: str) -> Any:
        if "flash_" in text:
            texts[text] += 1
        return compile_shader(text)

    monkeypatch.setattr(torch.mps, "compile_shader", counted)
    runtime.clear()
    yield texts
    runtime.clear()


def in_threads(work: Callable[[int], list[Tensor]]) -> list[list[Tensor]]:
    """What each thread gives; all begin at once. Raises what one of them raises."""
    start = threading.Barrier(THREADS)
    results: dict[int, Any] = {}

    def run(index: int) -> None:
        start.wait()
        try:
            results[index] = work(index)
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results.values():
        if isinstance(result, BaseException):
            raise result
    return [results[index] for index in range(THREADS)]


def gradients(function: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out.sin().sum(), leaves)]


@pytest.mark.parametrize("share", [True, False], ids=["one compiled function", "one a thread"])
def test_threads_that_compile_and_run_at_once_agree_to_the_bit(share: bool, compilations: Counter[str]) -> None:
    tensors = [torch.randn(1, 2, 33, 16, device="mps") for _ in "qkv"]
    shared = [torch.compile(function, backend="mps_attention") for function in (attend, written_by_hand)]

    def work(_: int) -> list[Tensor]:
        functions = shared if share else [torch.compile(f, backend="mps_attention") for f in (attend, written_by_hand)]
        return [tensor for function in functions for tensor in gradients(function, tensors)]

    results = in_threads(work)
    assert all(torch.equal(a, b) for result in results[1:] for a, b in zip(result, results[0], strict=True))
    for got, eager in zip(results[0], gradients(attend, tensors) + gradients(written_by_hand, tensors), strict=True):
        torch.testing.assert_close(got, eager, rtol=1e-4, atol=1e-5)
    # Causal and not: a forward, a dq and a dkv kernel of each. delta knows no band.
    assert sorted(compilations.values()) == [1] * 7
    assert ima.stats()["launches"] == dict.fromkeys(EACH_ONCE, 2 * THREADS)


def test_a_text_that_does_not_compile_is_shown_with_line_numbers_and_the_next_call_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    q = torch.randn(1, 2, 20, 16, device="mps")
    compiled = torch.compile(lambda q: attend(q, q, q), backend="mps_attention")
    compile_shader = torch.mps.compile_shader
    runtime.clear()
    with monkeypatch.context() as broken:
        broken.setattr(torch.mps, "compile_shader", lambda text: compile_shader(text.replace("float", "flot", 1)))
        for call in (compiled, lambda q: ima.flash_attention(q, q, q)):
            with pytest.raises(KernelCompileError, match=r"kernel flash_forward_\w+ does not compile") as caught:
                call(q)
            number = next(n for n, line in enumerate(caught.value.text.splitlines(), 1) if "float" in line)
            assert f"line {number}: " in caught.value.complaint
            assert f"\n{number:>3} | {caught.value.text.splitlines()[number - 1]}\n" in str(caught.value)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert str(copied) == str(caught.value)
    torch.testing.assert_close(compiled(q), attend(q, q, q))


def test_a_new_process_compiles_a_whole_graph_at_once(tmp_path: Path) -> None:
    """Nothing of the package is imported before Dynamo meets the backend, and nothing may break the graph then."""
    script = (
        "import torch, torch.nn.functional as F\n"
        "q = torch.randn(1, 2, 16, 32, device='mps', requires_grad=True)\n"
        "attend = lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True)\n"
        "out = torch.compile(attend, backend='mps_attention', fullgraph=True, dynamic=True)(q)\n"
        "(grad,) = torch.autograd.grad(out.sin().sum(), q)\n"
        "(wanted,) = torch.autograd.grad(attend(q).sin().sum(), q)\n"
        "torch.testing.assert_close(grad, wanted, rtol=1e-4, atol=1e-5)\n"
        "import inductor_mps_attention as ima\n"
        "print(ima.stats())\n"
    )
    environment = os.environ | {"MPS_ATTENTION_SIMULATOR": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str({"fused": 1, "declined": {}, "launches": EACH_ONCE})
