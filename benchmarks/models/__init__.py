"""Real architectures from configuration, tiny and random: which of their attentions are fused, and why others not."""

from .libraries import declare_operators_of_torchvision

declare_operators_of_torchvision()
