"""`torch.compile(model, backend="mps_attention")`: Inductor with the fusion pass in front of it.

Found through the entry point in the group `torch_dynamo_backends`; registering the name a second time would make Dynamo
refuse both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.fx import GraphModule

from .config import Options, split_options
from .matching import fusion_pass

Compiled = Callable[..., Any]


def mps_attention(
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Compiled:
    """Compiles one Dynamo graph. mode: as torch.compile's. options: ours under `attention.`, the rest is Inductor's.

    Raises InvalidOption for an unknown or malformed `attention.` option, Declined where `attention.strict` is set.
    """
    ours, inductor_options = split_options(options)
    if ours.inner == "inductor":
        return _compile_inductor(graph_module, example_inputs, ours, _mode_options(mode) | inductor_options)
    fusion_pass.run(graph_module, ours)
    graph_module.recompile()
    if ours.inner == "eager":
        return graph_module.forward
    compile_inner = torch._dynamo.lookup_backend(ours.inner)
    return cast(Compiled, compile_inner(graph_module, list(example_inputs)))


def _mode_options(mode: str | None) -> dict[str, Any]:
    return dict(torch._inductor.list_mode_options(mode)) if mode else {}


def _compile_inductor(
    graph_module: GraphModule, example_inputs: Sequence[Any], ours: Options, inductor_options: dict[str, Any]
) -> Compiled:
    """Inductor with the pass behind the user's own pre-grad passes: they see the attention as it was written."""
    import torch._inductor.config as inductor_config
    from torch._inductor.compile_fx import compile_fx

    from . import lowering
    from .registration import beside

    lowering.enable()
    passes = inductor_options.get("pre_grad_custom_pass", inductor_config.pre_grad_custom_pass)
    patches = inductor_options | {"pre_grad_custom_pass": beside(passes, fusion_pass.FusionPass(ours))}
    return cast(Compiled, compile_fx(graph_module, list(example_inputs), config_patches=patches))
