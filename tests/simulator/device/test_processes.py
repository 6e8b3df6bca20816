"""Threads, forked children and data loaders beside the device."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.data import DataLoader, TensorDataset

from .support import run_python


def test_threads_compute_at_the_same_time_and_memory_adds_up():
    gc.collect()  # what other tests left must not be freed while this one counts
    before = torch.mps.current_allocated_memory()

    def work(seed):
        x = torch.full((50, 50), float(seed), device="mps", requires_grad=True)
        for _ in range(20):
            x.grad = None
            (x @ x).sum().backward()
        return x.grad[0, 0].item()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [2 * 50 * seed for seed in range(4)]
    assert torch.mps.current_allocated_memory() == before


def test_the_device_works_in_a_forked_child():
    program = """
        import os, torch
        from inductor_mps_attention import simulator
        simulator.install()
        torch.set_num_threads(1)
        x = torch.arange(4.0, device="mps")
        child = os.fork()
        if child == 0:
            y = x.clone().requires_grad_()
            (y * y).sum().backward()
            os._exit(0 if y.grad.tolist() == [0, 2, 4, 6] else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    ran = run_python(program)
    assert ran.stdout == "0\n", ran.stderr


def test_workers_of_a_data_loader_feed_the_device():
    data = TensorDataset(torch.arange(6.0))
    loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork")
    total = torch.zeros((), device="mps")
    for (batch,) in loader:
        total += batch.to("mps", non_blocking=True).sum()
    assert total.item() == 15
