"""`torch.ops.mps_attention.*`. Importing this package registers the operators with their fakes and gradients."""

from .registration import flash_backward, flash_forward

__all__ = ["flash_backward", "flash_forward"]
