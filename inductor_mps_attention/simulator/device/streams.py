"""Streams, which `torch.mps` has from PyTorch 2.15 on: every operation is complete at once, so a stream is a number."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import torch

_MPS_DEVICE_TYPE = 13  # c10::DeviceType::MPS
_fresh_ids = itertools.count(1)
_selected = threading.local()


class Stream(torch.Stream):
    """What `torch.mps.Stream` is on an MPS build: a stream that exists, by its id, or a new one."""

    def __new__(cls, *, stream_id: int | None = None) -> Stream:
        number = next(_fresh_ids) if stream_id is None else stream_id
        make: Any = super().__new__
        stream: Stream = make(cls, stream_id=number, device_index=0, device_type=_MPS_DEVICE_TYPE)
        return stream

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def query(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<torch.mps.Stream stream_id={self.stream_id}>"


def patch_streams() -> None:
    """Gives `torch.mps` the streams that only an MPS build has. Versions without streams stay without."""
    module: Any = getattr(torch.mps, "streams", None)
    if module is None:
        return
    bindings: Any = torch._C
    mps: Any = torch.mps
    bindings._MPSStreamBase = module.Stream = mps.Stream = Stream
    bindings._mps_getCurrentStream = lambda: Stream(stream_id=getattr(_selected, "id", 0))
    bindings._mps_setStream = lambda stream: setattr(_selected, "id", stream.stream_id)
