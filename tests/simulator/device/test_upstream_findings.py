"""Faults of PyTorch's own MPS code generation that the simulator brings to light. Nothing here is patched.

Each test asserts the fault in the versions that have it, and that it is gone in those that have it mended.
"""

from __future__ import annotations

import pytest
import torch

from inductor_mps_attention import simulator

MENDED = torch.__version__ >= "2.15"


def indexed_sum(positions, x):
    """(batch, length, width) -> (length, width): the sums over the batch, added at `positions` of a table of zeros.

    This is the backward of a learned position embedding: the gradient summed over the batch, then scattered.
    """
    return torch.zeros_like(x[0]).index_put((positions,), x.sum(0), accumulate=True)


# Inductor's Metal for an accumulating store after a reduction has no "if this is the reduction's first thread": every
# thread of it adds the whole sum. Reductions of up to 4 elements are unrolled in one thread, and so are right.
@pytest.mark.parametrize(("batch", "times_too_big"), [(2, 1), (8, 8), (16, 16)])
def test_stock_inductor_adds_the_sum_once_a_thread_of_the_reduction(batch, times_too_big):
    positions, x = torch.arange(3), torch.rand(batch, 3, 4)
    simulator.reset_shaders()
    compiled = torch.compile(indexed_sum, fullgraph=True, dynamic=False)
    result = compiled(positions.to("mps"), x.to("mps")).cpu()
    assert "atomic_add" in simulator.shaders()[-1]
    torch.testing.assert_close(result, (1 if MENDED else times_too_big) * indexed_sum(positions, x))


def test_so_stock_inductor_makes_the_gradient_of_position_embeddings_too_big():
    def loss(table, x):
        return (torch.nn.functional.embedding(torch.arange(3, device=x.device), table) + x).sin().sum()

    def gradient(function, device):
        leaf = table.clone().to(device).requires_grad_()
        function(leaf, x.to(device)).backward()
        return leaf.grad.cpu()

    table, x = torch.randn(3, 4), torch.randn(8, 3, 4)
    compiled = torch.compile(loss, fullgraph=True, dynamic=False)
    torch.testing.assert_close(gradient(compiled, "mps"), (1 if MENDED else 8) * gradient(loss, "cpu"))
    torch.testing.assert_close(gradient(loss, "mps"), gradient(loss, "cpu"))  # eager is right
