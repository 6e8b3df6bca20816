"""`python -m benchmarks.call_overhead`, which fails where a lowered call costs too much: times are judged there."""

from __future__ import annotations

import torch
from inductor_mps_attention.codegen import Problem, Role, plan, render

from benchmarks.call_overhead import BARE, LOWERED, OPAQUE, Overheads, measure, without_bodies
from inductor_mps_attention import simulator


def test_all_ways_to_call_a_kernel_are_measured() -> None:
    measured = measure(rounds=3)
    assert {BARE, LOWERED, OPAQUE} <= measured.seconds.keys()
    assert all(seconds > 0 for seconds in measured.seconds.values())


def test_a_call_within_its_limits_passes_and_one_beyond_does_not() -> None:
    assert not Overheads({BARE: 1.0, LOWERED: 1.2, OPAQUE: 3.0}).failures()
    slow, opaque = Overheads({BARE: 1.0, LOWERED: 1.4, OPAQUE: 2.0}).failures()
    assert "1.40 times a bare one" in slow
    assert "0.70 of an opaque one" in opaque


def test_kernels_without_bodies_do_nothing() -> None:
    planned = plan(Problem("float32", 16, 16, has_lower=False, has_upper=True), Role.FORWARD)
    source = render(planned)
    text = without_bodies(source.text)
    assert len(text) < len(source.text)
    kernel = getattr(simulator.compile_shader(text), source.entry)
    out = torch.full((1, 1, 8, 16), 7.0)
    tensors = [out if buffer.writable else torch.randn(1, 1, 8, 16) for buffer in planned.buffers]
    kernel(*tensors, [1] * len(planned.parameters), 0.25, threads=(128, 1, 1), group_size=(128, 1, 1))
    assert (out == 7).all()
