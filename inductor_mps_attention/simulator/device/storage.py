"""`torch.UntypedStorage` on the simulated device: its class knows devices by name, and here not "mps"."""

from __future__ import annotations

from typing import Any

import torch

from inductor_mps_attention.simulator.device.core import Core


def patch_untyped_storage(core: Core) -> None:
    """`UntypedStorage(..., device="mps")` and `resize_` work on the device; other devices as before."""
    base: Any = torch._C.StorageBase
    allocator = core.allocator()

    def new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None:
            return base.__new__(cls, *args, **kwargs)
        if torch.device(device).type != "mps":
            return base.__new__(cls, *args, device=device, **kwargs)
        if not args or isinstance(args[0], int):
            return base.__new__(cls, *args[:1], allocator=allocator)
        on_cpu = base.__new__(cls, args[0])
        return base.__new__(cls, on_cpu.nbytes(), allocator=allocator).copy_(on_cpu)

    def resize(self: Any, size: int) -> Any:
        if self.device.type != "mps":
            return base.resize_(self, size)
        core.resize_storage(self, size)
        return self

    storage: Any = torch.UntypedStorage
    storage.__new__, storage.resize_ = new, resize


def host_alias(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A CPU storage over the same memory, which it keeps alive."""
    on_device = torch.empty(0, dtype=torch.uint8, device="mps").set_(storage)
    alias: torch.UntypedStorage = torch.ops.mps_simulator.cpu_view(on_device).untyped_storage()
    return alias
