"""Every test runs on the simulated mps device, and every cache lives in a folder of this run or of the project."""

from __future__ import annotations

import os

# The device must be there before anything asks torch which devices exist: before autograd and before Inductor.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ["MPS_ATTENTION_TUNED"] = ""  # nothing that was measured on this machine decides what a test plans

import pytest
import torch

from inductor_mps_attention import simulator

# Test processes run side by side; the simulated kernels have their own threads.
torch.set_num_threads(1)

if not torch.backends.mps.is_available():
    simulator.install()


@pytest.fixture(autouse=True)
def fresh_compiler():
    """No test sees what another has compiled or counted."""
    import inductor_mps_attention as ima

    torch._dynamo.reset()
    ima.reset_stats()
    torch.manual_seed(0)
    with torch._inductor.config.patch(force_disable_caches=True):
        yield
