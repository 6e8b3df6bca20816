"""A program that ends right after a backward ends well."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import torch
from inductor_mps_attention import simulator
simulator.install()

class Twice(torch.autograd.Function):  # a backward in Python, as that of a custom operator
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

Twice.apply(torch.ones(3, device="mps", requires_grad=True)).sum().backward()
"""


def test_the_end_of_a_program_right_after_a_backward():
    """Without waiting for autograd's thread about every third such program aborts."""
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
