"""What a lowered call costs the host, as `python -m benchmarks.call_overhead` measures it."""

from __future__ import annotations

import torch
from inductor_mps_attention.codegen import Problem, Role, plan, render

from benchmarks.call_overhead import BARE, LOWERED, OPAQUE, Overheads, measure, without_bodies
from inductor_mps_attention import simulator


def test_a_lowered_call_costs_little_more_than_a_bare_one_and_far_less_than_the_operator() -> None:
    """A busy machine only adds, so one undisturbed measurement of three is enough."""
    tries = (measure(rounds=30) for _ in range(3))
    assert any(not measured.failures() for measured in tries)


def test_limits_can_be_passed() -> None:
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
