"""The device is installed before anything asks torch which devices exist."""

from __future__ import annotations

from inductor_mps_attention import simulator

simulator.install()
