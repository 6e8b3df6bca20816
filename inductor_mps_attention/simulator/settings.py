"""The simulator's settings. The one reader of its environment variables; each is read when it is asked for.

MPS_ATTENTION_SIMULATOR=1      `import torch` alone installs the simulated device; `simulator.autoload` reads it,
                               as it runs at every `import torch` and imports nothing, not even this module
MPS_ATTENTION_SIMULATOR_CACHE  where built libraries are kept; default inductor_mps_attention/simulator in
                               $XDG_CACHE_HOME or ~/.cache
CXX                            the C++ compiler; default g++, else c++, else clang++
PYTORCH_ENABLE_MPS_FALLBACK=1  PyTorch's own: operators without an MPS kernel run on the CPU, not refused
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from inductor_mps_attention.simulator.errors import SimulatorError


def cpu_fallback_wanted() -> bool:
    """Whether operators that a real build has no MPS kernel for run on the CPU."""
    return os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK", "0") not in ("", "0")


def cache_directory() -> Path:
    """Where built libraries are kept. It need not exist yet."""
    chosen = os.environ.get("MPS_ATTENTION_SIMULATOR_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "inductor_mps_attention" / "simulator"


def compiler() -> str:
    """Path of the C++ compiler. SimulatorError if there is none."""
    wanted = os.environ.get("CXX")
    candidates = [wanted] if wanted else ["g++", "c++", "clang++"]
    for name in candidates:
        path = shutil.which(name)
        if path:
            return path
    raise SimulatorError(
        f"the simulator builds native code and found no C++ compiler (tried {', '.join(candidates)}): "
        "install g++ (Debian, Ubuntu: apt install g++), or name another compiler in CXX"
    )
