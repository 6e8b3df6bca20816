"""One compiled kernel a text: over lengths, layouts, bounds and threads."""

from __future__ import annotations

import threading

import pytest
import torch
from inductor_mps_attention.codegen import Problem, forward_steps

import inductor_mps_attention as ima
from inductor_mps_attention import runtime
from inductor_mps_attention.operators import flash_forward
from inductor_mps_attention.runtime import compiled
from tests.support.inputs import Shape, make


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch):
    """The texts that are compiled during a test that starts with none."""
    texts: list[str] = []
    compile_shader = torch.mps.compile_shader
    monkeypatch.setattr(torch.mps, "compile_shader", lambda text: texts.append(text) or compile_shader(text))
    runtime.clear()
    yield texts
    runtime.clear()


def test_lengths_bounds_scales_and_heads_share_one_text(compilations: list[str]) -> None:
    for length, bound, scale in ((20, 0, 0.1), (33, 5, 0.2), (100, -3, 0.3)):
        q, k, v, _ = make(Shape(2, 4, 2, length, length + 3, 32), torch.float32)
        flash_forward(q, k, v, None, scale, None, bound)
    assert len(compilations) == 1


def test_dtypes_head_dims_and_bounded_sides_have_texts_of_their_own(compilations: list[str]) -> None:
    for dtype, head_dim, upper in (
        (torch.float32, 32, 0),
        (torch.float16, 32, 0),
        (torch.float32, 40, 0),
        (torch.float32, 32, None),
    ):
        q, k, v, _ = make(Shape(head_dim=head_dim), dtype)
        flash_forward(q, k, v, None, 0.2, None, upper)
    assert len(set(compilations)) == len(compilations) == 4


def test_threads_that_race_for_a_kernel_compile_it_once(compilations: list[str]) -> None:
    q, k, v, _ = make(Shape(), torch.float32)
    start = threading.Barrier(4)
    results: list[torch.Tensor] = []

    def call() -> None:
        start.wait()
        results.append(flash_forward(q, k, v, None, 0.2, None, None)[0])

    workers = [threading.Thread(target=call) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(compilations) == 1
    assert all(torch.equal(result, results[0]) for result in results)
    assert ima.stats()["launches"] == {"forward": 4}


@pytest.mark.parametrize(
    ("layout", "head_dim", "aligned"),
    [("contiguous", 64, True), ("transposed", 64, True), ("packed", 8, True), ("offset", 64, False)],
)
def test_vector_loads_only_where_every_row_starts_at_16_bytes(layout: str, head_dim: int, aligned: bool) -> None:
    tensors = dict(zip("qkv", make(Shape(head_dim=head_dim), torch.float16, layout=layout), strict=False))
    assert runtime.aligned_rows(tensors) == (set("qkv") if aligned else set())


def test_a_stride_that_no_row_uses_does_not_forbid_vector_loads() -> None:
    q, _, v, _ = make(Shape(batch=1, heads=1, kv_heads=1), torch.float16)
    odd = torch.as_strided(q, q.shape, (7, 13, 64, 1))
    assert runtime.aligned_rows({"q": q, "k": odd, "v": v}) == set("qkv")


def test_only_staged_tensors_must_be_aligned() -> None:
    """Queries of the forward are read element by element: their alignment decides nothing."""
    q, k, v, _ = make(Shape(), torch.float16)
    unaligned = make(Shape(), torch.float16, layout="offset")[0]
    for name, vectors in (("q", True), ("k", False)):
        aligned = runtime.aligned_rows({"q": q, "k": k, "v": v} | {name: unaligned})
        step, *_ = forward_steps(Problem("float16", 64, 64), aligned)
        assert (step.plan.vector > 1) == vectors


def test_clear_forgets_the_kernels() -> None:
    q, k, v, _ = make(Shape(), torch.float32)
    flash_forward(q, k, v, None, 0.2, None, None)
    assert compiled._kernels
    runtime.clear()
    assert not compiled._kernels
