"""`explain`: what would be fused in a program, and why the rest would not, without running its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from .config import read_options
from .matching import fusion_pass
from .report import Report, Site
from .stock import with_notes


def explain(fn_or_module: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Captures `fn_or_module(*args, **kwargs)` with Dynamo and reports each attention found in its graphs.

    No graph is run: what a graph would compute is replaced by zeros of its shapes, so parameters, buffers and inputs
    stay as they are, and code that branches on computed values takes the branch of zeros. Options come from the
    environment (`MPS_ATTENTION_*`); `strict` is ignored, as a decline is what is asked for. Raises what the program
    itself raises.
    """
    options = read_options({"strict": False})
    sites: list[Site] = []
    graphs = 0

    def collect(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1
        outputs = _outputs(graph_module)
        sites.extend(with_notes(fusion_pass.run(graph_module, options, count=False), graph_module))
        return lambda *inputs: [_zeros(value, inputs) for value in outputs]

    fn = _uncompiled(fn_or_module)
    # Each call of explain is a backend of its own, and Dynamo would stop compiling a function after a handful of them.
    with torch._dynamo.config.patch(recompile_limit=1 << 16, accumulated_recompile_limit=1 << 16):
        torch.compile(fn, backend=collect)(*args, **kwargs)
    return Report(sites, graphs)


def _uncompiled(fn_or_module: Callable[..., Any]) -> Callable[..., Any]:
    """What the user compiled, where he hands over the compiled thing."""
    original = getattr(fn_or_module, "_orig_mod", None)
    if isinstance(original, torch.nn.Module):
        return original
    return getattr(fn_or_module, "_torchdynamo_orig_callable", fn_or_module)


def _outputs(graph_module: GraphModule) -> list[Any]:
    """What the graph returns: the fake value of each output, or the number of the placeholder that it hands through."""
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    (returned,) = graph_module.graph.output_node().args
    assert isinstance(returned, (tuple, list))
    values: list[Any] = []
    for node in returned:
        if not isinstance(node, Node):
            values.append(node)
        elif node.op == "placeholder":
            values.append(_Input(placeholders.index(node)))
        else:
            values.append(node.meta.get("example_value", node.meta.get("val")))
    return values


class _Input(int):
    """The number of an input that the graph returns as it is."""


def _zeros(value: Any, inputs: tuple[Any, ...]) -> Any:
    if isinstance(value, _Input):
        return inputs[value]
    if isinstance(value, Tensor):
        sizes, strides = map(_plain, value.shape), map(_plain, value.stride())
        zeros = torch.empty_strided(tuple(sizes), tuple(strides), dtype=value.dtype, device=value.device).zero_()
        return zeros.requires_grad_(value.requires_grad)
    return _plain(value)


def _plain(value: Any) -> Any:
    """A symbolic number as what it is in this call, which is its hint: explain makes one call.

    A number that depends on data has none; as with zeros for tensors, any number will do.
    """
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _DATA_DEPENDENT[type(value)] if value.node.hint is None else value.node.hint
    return value


_DATA_DEPENDENT: dict[type, Any] = {torch.SymInt: 2, torch.SymFloat: 0.0, torch.SymBool: False}
