"""Data-parallel training in two processes over gloo: each compiles for itself, gradients are averaged on the CPU.

`DistributedDataParallel` itself needs collectives on the model's device, and gloo has none for mps tensors.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path

import torch
import torch.distributed
import torch.multiprocessing
from torch import Tensor, nn

from tests.support import budgets
from tests.support.models import Attention

WORKERS, WIDTH, LENGTH = 2, 32, 20


def model() -> nn.Module:
    torch.manual_seed(0)
    return Attention(WIDTH, 2, "manual")


def batch(rank: int) -> Tensor:
    return torch.randn(2, LENGTH, WIDTH, generator=torch.Generator().manual_seed(rank))


def loss_of(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).sin().mean()


def work(rank: int, folder: str) -> None:
    """One step of one worker; the averaged gradients and the launches go into a file."""
    import inductor_mps_attention as ima
    from inductor_mps_attention.backend import mps_attention

    ima.simulator.install()
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", rank=rank, world_size=WORKERS, init_method=f"file://{folder}/rendezvous"
    )
    from torch._dynamo.backends.distributed import DDPOptimizer

    own = model().to("mps")
    # What torch.compile does to a DDP module: the graph is cut where buckets of gradients end.
    splitter = DDPOptimizer(
        bucket_bytes_cap=WIDTH * WIDTH * 4, first_bucket_cap=WIDTH * WIDTH * 4, backend_compile_fn=mps_attention
    )
    torch.compile(loss_of, backend=splitter.compile_fn)(own, batch(rank).to("mps")).backward()
    gradients = []
    for parameter in own.parameters():
        gradient = parameter.grad.cpu()  # type: ignore[union-attr]
        torch.distributed.all_reduce(gradient)
        gradients.append(gradient / WORKERS)
    torch.save({"gradients": gradients, "launches": ima.stats()["launches"]}, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_average_the_gradients_of_one(tmp_path: Path) -> None:
    before = dict(os.environ)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "cache")
    try:
        torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=WORKERS)
    finally:
        os.environ.clear()
        os.environ.update(before)
    exact = copy.deepcopy(model()).double()
    (sum(loss_of(exact, batch(rank).double()) for rank in range(WORKERS)) / WORKERS).backward()
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(WORKERS)]
    for result in results:
        assert result["launches"] == dict.fromkeys(("forward", "backward_delta", "backward_dq", "backward_dkv"), 1)
        for got, parameter in zip(result["gradients"], exact.parameters(), strict=True):
            budgets.check("gradient", got, parameter.grad, budgets.BACKWARD[torch.float32])
    for one, other in zip(*(result["gradients"] for result in results), strict=True):
        assert torch.equal(one, other)
