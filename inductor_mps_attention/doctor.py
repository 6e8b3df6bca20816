"""What this installation finds on this machine: one line a fact that the package depends on."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import entry_points


@dataclass(frozen=True)
class Check:
    """name: what was looked at; finding: what is there; ok: whether the package works with it."""

    name: str
    finding: str
    ok: bool


def findings() -> list[Check]:
    """All checks, in the order in which one depends on another."""
    return [_torch(), _device(), _entry_point(), _pass_hook(), _operators(), _codegen(), _tuned()]


def _torch() -> Check:
    import torch

    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    ok = (2, 13) <= release < (2, 16)
    return Check("torch", f"{torch.__version__} on Python {platform.python_version()}; 2.13 to 2.15 are supported", ok)


def _device() -> Check:
    import torch

    from . import simulator

    if simulator.is_installed():
        return Check("mps device", "simulated on this CPU: right results, no Apple GPU, no meaningful times", True)
    if torch.backends.mps.is_available():
        return Check("mps device", f"real, on macOS {platform.mac_ver()[0]}", True)
    return Check(
        "mps device",
        "none: nothing will be fused. On Linux, MPS_ATTENTION_SIMULATOR=1 gives a simulated one",
        False,
    )


def _entry_point() -> Check:
    found = [entry.value for entry in entry_points(group="torch_dynamo_backends") if entry.name == "mps_attention"]
    ok = len(found) == 1
    return Check('backend="mps_attention"', ", ".join(found) if found else "no entry point: install the package", ok)


def _pass_hook() -> Check:
    import torch._inductor.config as inductor_config
    from torch._inductor.custom_graph_pass import get_custom_graph_passes

    from .matching.fusion_pass import FusionPass

    passes = get_custom_graph_passes(inductor_config.pre_grad_custom_pass)
    names = ", ".join(type(p).__name__ for p in passes) or "none"
    registered = "registered" if any(isinstance(p, FusionPass) for p in passes) else "not registered"
    return Check("default inductor", f"{registered}; pre-grad passes: {names}", True)


def _operators() -> Check:
    from . import lowering, operators

    names = ", ".join(str(op) for op in (operators.flash_forward, operators.flash_backward))
    reason = lowering.missing()
    how = (
        "Inductor calls their kernels directly" if reason is None else f"opaque to Inductor: this torch lacks {reason}"
    )
    return Check("operators", f"{names}; {how}", True)


def _codegen() -> Check:
    from inductor_mps_attention.codegen import Problem, Rejected, Role, plan, render

    problem = Problem("float32", 64, 64, has_lower=False, has_upper=True, aligned=True)
    planned = plan(problem, Role.FORWARD)
    if isinstance(planned, Rejected):
        return Check("kernel templates", planned.message, False)
    source = render(planned)
    return Check("kernel templates", f"{source.entry}: {len(source.text)} characters of Metal", True)


def _tuned() -> Check:
    import warnings

    from .tuning.current import current

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the refusal is what is printed
        tuned = current()
    if tuned.refusal is not None:
        return Check("tuned file", f"{tuned.refusal}; it is ignored", False)
    if tuned.path is None:
        return Check("tuned file", "none is looked for: MPS_ATTENTION_TUNED is empty", True)
    counts = f"{len(tuned.plans)} plans and {len(tuned.results.compared)} comparisons of this machine"
    return Check("tuned file", f"{tuned.path}: {counts if tuned.path.exists() else 'not there'}", True)
