"""How much memory the simulated device has held at most."""

from __future__ import annotations

from inductor_mps_attention.simulator.device import installation


def peak_memory() -> int:
    """Bytes: the highest sum of live device storages since `install()` or the last `reset_peak_memory()`.

    Temporary memory inside one operator is not counted, neither a CPU kernel's nor a real MPS kernel's.
    """
    return installation.installed_core().peak_memory()


def reset_peak_memory() -> None:
    """The high-water mark becomes what is live now, which is `torch.mps.current_allocated_memory()`."""
    installation.installed_core().reset_peak_memory()
