"""What a program meets at the edges of the device: memory that runs out, generators of another device, tensors sent to
other processes. The words are PyTorch's.
"""

from __future__ import annotations

import copy
import multiprocessing
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

GIB = 1 << 30


@pytest.fixture
def memory_fraction():
    yield torch.mps.set_per_process_memory_fraction
    torch.mps.set_per_process_memory_fraction(1.7)


def test_a_buffer_that_no_device_has_is_refused():
    with pytest.raises(RuntimeError, match=r"Invalid buffer size: 4096\.00 GiB"):
        torch.empty(1 << 42, dtype=torch.uint8, device="mps")


def test_memory_runs_out_at_the_fraction_that_was_set(memory_fraction):
    memory_fraction(0.0001)  # of 16 GiB
    with pytest.raises(RuntimeError, match=r"MPS backend out of memory \(MPS allocated: .*, max allowed: 1\.64 MiB\)"):
        torch.empty(2 << 20, dtype=torch.uint8, device="mps")
    small = torch.ones(200_000, device="mps")
    with pytest.raises(RuntimeError, match=r"Tried to allocate 1\.53 MiB on private pool"):  # by a CPU kernel
        torch.cat([small, small])
    memory_fraction(0.0)
    assert torch.empty(2 << 20, dtype=torch.uint8, device="mps").numel() == 2 << 20


@pytest.mark.parametrize(
    "draw",
    [
        lambda generator: torch.randn(3, device="mps", generator=generator),
        lambda generator: torch.empty(3, device="mps").uniform_(generator=generator),
        lambda generator: torch.multinomial(torch.ones(3, device="mps"), 1, generator=generator),
        lambda generator: torch.bernoulli(torch.ones(3, device="mps"), generator=generator),
    ],
)
def test_a_generator_of_the_cpu_is_refused(draw):  # drew from it
    with pytest.raises(RuntimeError, match="Expected a 'mps' device type for generator but found 'cpu'"):
        draw(torch.Generator())


def test_a_generator_of_the_device_is_refused_on_the_cpu():
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'mps'"):
        torch.randn(3, generator=torch.Generator("mps"))


def test_a_generators_state_is_that_of_a_real_one_in_size():
    generator = torch.Generator("mps").manual_seed(5)
    state = generator.get_state()
    assert (state.dtype, state.device.type, state.numel()) == (torch.uint8, "cpu", 44)
    assert torch.mps.get_rng_state().numel() == 44
    first = torch.rand(4, device="mps", generator=generator)
    assert not torch.rand(4, device="mps", generator=generator).equal(first)
    generator.set_state(state)
    assert torch.rand(4, device="mps", generator=generator).equal(first)
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        generator.set_state(torch.zeros(16, dtype=torch.uint8))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g)), lambda g: g.clone_state()])
def test_a_copied_generator_goes_on_alike(copied):
    generator = torch.Generator("mps").manual_seed(3)
    torch.rand(2, device="mps", generator=generator)
    other = copied(generator)
    expected = torch.rand(5, device="mps", generator=generator)
    assert torch.rand(5, device="mps", generator=other).equal(expected)


def test_an_offset_says_where_a_generator_is():
    generator = torch.Generator("mps").manual_seed(3)
    first = torch.rand(5, device="mps", generator=generator)
    assert generator.get_offset() > 0
    generator.set_offset(0)
    assert torch.rand(5, device="mps", generator=generator).equal(first)


def test_a_tensor_is_not_sent_to_another_process():
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=print, args=(torch.ones(2, device="mps"),))
    with pytest.raises(RuntimeError, match="only available on CPU"):
        process.start()


def test_a_loader_whose_workers_make_device_tensors_fails_and_does_not_wait_for_ever():
    loader = DataLoader(TensorDataset(torch.arange(4.0, device="mps")), batch_size=2, num_workers=1, timeout=60)
    with pytest.raises(RuntimeError, match="only available on CPU"):
        next(iter(loader))
    assert [batch.tolist() for (batch,) in DataLoader(loader.dataset, batch_size=2)] == [[0, 1], [2, 3]]


def test_memory_is_not_pinned():
    with pytest.raises(RuntimeError, match='device "cpu" to a storage on different device "mps:0"'):
        torch.ones(2).pin_memory()
    assert not torch.ones(2).is_pinned()


def test_events_without_timing_have_no_elapsed_time():
    events = [torch.mps.Event(), torch.mps.Event()]
    for event in events:
        event.record()
    with pytest.raises(RuntimeError, match="Events were not created with argument 'enable_timing=True'"):
        events[0].elapsed_time(events[1])
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    end.record()
    start.record()
    with pytest.raises(RuntimeError, match="was not recorded after start event"):
        start.elapsed_time(end)
    end.record()
    assert start.elapsed_time(end) > 0


def test_capability_names_the_types_that_the_device_has():
    types = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.complex64, torch.bool} <= types
    assert not types & {torch.float64, torch.complex128, torch.float8_e4m3fn}


def test_there_is_one_device_whatever_its_number():
    assert torch.zeros(2, device="mps:1").device == torch.device("mps:0")  # as PyTorch's MPS allocator takes it
    assert torch.mps.device_count() == torch.accelerator.device_count() == 1
