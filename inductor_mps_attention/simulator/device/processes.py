"""Tensors of the device do not go to other processes: on a Mac the attempt fails, and so it does here. The queue of a
DataLoader pickles in a thread of the worker, where an exception is printed and the reader waits for ever; there the
exception travels instead.
"""

from __future__ import annotations

import threading
from multiprocessing.queues import Queue
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions

_MESSAGE = (
    "_share_filename_: only available on CPU: a tensor on mps cannot be sent to another process; "
    "send a CPU tensor, and call .to('mps') where it arrives"
)


def patch_reductions() -> None:
    """`ForkingPickler`, which `torch.multiprocessing` and DataLoader's workers use, refuses the device's storages."""
    shared: Any = reductions.reduce_storage

    def reduce_storage(storage: torch.UntypedStorage) -> Any:
        if storage.device.type != "mps":
            return shared(storage)
        if threading.current_thread().name.startswith(Queue.__name__ + "Feeder"):
            return _refuse, ()
        _refuse()

    ForkingPickler.register(torch.UntypedStorage, reduce_storage)


def _refuse() -> NoReturn:
    raise RuntimeError(_MESSAGE)
