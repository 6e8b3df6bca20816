"""PyTorch must take the device for a real one: availability, memory counters, events, accelerator."""

from __future__ import annotations

import time

import pytest
import torch

from inductor_mps_attention import simulator


def test_every_question_for_a_device_is_answered_yes():
    assert torch.backends.mps.is_built()
    assert torch.backends.mps.is_available()
    assert torch.mps.is_available()
    assert torch.mps.device_count() == 1
    assert torch.backends.mps.is_macos_or_newer(14, 0)
    assert torch.backends.mps.get_core_count() > 0
    assert "imulated" in torch.backends.mps.get_name()
    assert simulator.is_installed()


def test_the_accelerator_is_mps():
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == 1
    assert torch.accelerator.current_accelerator() == torch.device("mps")
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.synchronize()
    torch.mps.synchronize()
    torch.mps.empty_cache()
    torch.mps.set_per_process_memory_fraction(0.5)


# CPU kernels allocate some results: easily counted never, or twice.
def test_memory_of_results_is_counted_and_given_back():
    before = torch.mps.current_allocated_memory()
    made = torch.empty(1000, device="mps")
    assert torch.mps.current_allocated_memory() == before + 4000
    computed = made * 2
    assert torch.mps.current_allocated_memory() == before + 8000
    view, in_place = computed[10:].view(9, 110), computed.add_(1)
    assert torch.mps.current_allocated_memory() == before + 8000
    out = torch.empty(0, device="mps")
    torch.add(made, 1, out=out)
    assert torch.mps.current_allocated_memory() == before + 12000
    selected = made.index_select(0, torch.arange(10, device="mps"))
    assert torch.mps.current_allocated_memory() == before + 12040
    del made, computed, view, in_place, out, selected
    assert torch.mps.current_allocated_memory() == before
    assert torch.mps.driver_allocated_memory() >= before
    assert torch.mps.recommended_max_memory() > 2**30


def test_peak_memory_is_the_highest_sum_and_not_the_last():
    simulator.reset_peak_memory()
    before = torch.mps.current_allocated_memory()
    assert simulator.peak_memory() == before
    first = torch.empty(100_000, dtype=torch.uint8, device="mps")
    del first
    second = torch.empty(30_000, dtype=torch.uint8, device="mps") + 1
    assert simulator.peak_memory() == before + 100_000
    simulator.reset_peak_memory()
    assert simulator.peak_memory() == before + second.nbytes


def test_the_accelerator_counts_the_same_bytes():  # an allocator that answers torch.mps alone stops torch.accelerator
    kept = torch.empty(1000, dtype=torch.uint8, device="mps")
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
    assert before == torch.mps.current_allocated_memory()
    del kept
    assert torch.accelerator.memory_allocated() == before - 1000
    assert torch.accelerator.max_memory_allocated() == before
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total


def test_peak_memory_of_attention_grows_with_the_square_of_the_length():  # what the product is measured by
    def peak(length: int) -> int:
        q = torch.randn(1, 2, length, 8, device="mps")
        simulator.reset_peak_memory()
        before = torch.mps.current_allocated_memory()
        torch.softmax(q @ q.mT, -1) @ q
        return simulator.peak_memory() - before

    assert peak(256) > 3.5 * peak(128)
    assert peak(128) >= 2 * 128 * 128 * 4 * 2  # scores and weights


@pytest.mark.parametrize("event_type", [torch.mps.Event, lambda enable_timing: torch.Event("mps", enable_timing=True)])
def test_events_measure_time_in_order(event_type):
    start, end = event_type(enable_timing=True), event_type(enable_timing=True)
    start.record()
    time.sleep(0.01)
    end.record()
    end.synchronize()
    assert end.query()
    assert 9 < start.elapsed_time(end) < 2000


def test_streams_where_this_pytorch_has_them():
    if not hasattr(torch.mps, "Stream"):
        assert torch.__version__ < "2.15"
        return
    assert torch.mps.current_stream() == torch.mps.default_stream()
    other = torch.mps.Stream()
    with torch.mps.stream(other):
        assert torch.mps.current_stream() == other != torch.mps.default_stream()
        x = torch.ones(2, device="mps")
        x.record_stream(other)
        assert x.sum() == 2
    other.synchronize()
    assert torch.mps.current_stream().stream_id == 0


def test_a_context_of_the_device_makes_tensors_there():
    with torch.device("mps"):
        assert torch.ones(2).is_mps
    torch.set_default_device("mps")
    try:
        assert torch.arange(3).is_mps
    finally:
        torch.set_default_device(None)
