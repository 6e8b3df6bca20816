"""Inductor's output code as data: the calls of attention kernels and the tensors that they get."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass

_ROLES = ("forward", "backward_delta", "backward_dq", "backward_dkv", "backward_sum")


@dataclass(frozen=True)
class TensorArgument:
    """A tensor of a call; size, stride and offset are texts, empty where the buffer is passed as it is."""

    buffer: str
    size: str = ""
    stride: str = ""
    offset: str = ""


@dataclass(frozen=True)
class AttentionCall:
    """One direct launch of a kernel of ours."""

    role: str
    name: str
    tensors: tuple[TensorArgument, ...]
    integers: tuple[str, ...]


def body(code: str) -> str:
    """The part of Inductor's output code that runs at each call: no kernel texts."""
    return code[code.index("def call(") :]


def attention_calls(code: str) -> list[AttentionCall]:
    """In the order of the code."""
    lines = (line.strip() for line in body(code).splitlines())
    return [_call(ast.parse(line).body[0].value) for line in lines if line.startswith("flash_")]  # type: ignore[attr-defined]


def called_functions(code: str) -> set[str]:
    """All that a run of the output code calls, by name; "empty_strided" is how Inductor allocates."""
    return {ast.unparse(node.func) for node in ast.walk(_call_function(code)) if isinstance(node, ast.Call)}


def allocations(code: str) -> list[tuple[int, ...]]:
    """Sizes of the buffers that Inductor allocates, as far as they are numbers."""
    calls = [node for node in ast.walk(_call_function(code)) if isinstance(node, ast.Call)]
    return [ast.literal_eval(node.args[0]) for node in calls if ast.unparse(node.func) == "empty_strided"]


def asserted_strides(code: str) -> dict[str, str]:
    """What the output code asserts of its inputs' strides, by name, as text; torch 2.14 asserts several at once."""
    found: dict[str, str] = {}
    for node in ast.walk(_call_function(code)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "assert_size_stride":
            found[ast.unparse(node.args[0])] = ast.unparse(node.args[2])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "assert_size_stride_grouped":
            names, _, strides = (argument.elts for argument in node.args[:3])  # type: ignore[attr-defined]
            found |= dict(zip(map(ast.unparse, names), map(ast.unparse, strides), strict=True))
    return found


def holds_square(size: tuple[int, ...], length: int) -> bool:
    """Has a buffer of this size room for length x length numbers, in whatever shape? No size may be such by chance."""
    return math.prod(size) % length**2 == 0


def copies(code: str) -> list[str]:
    """Inductor's kernels that do nothing but copy: all that they compute is what they load, maybe cast."""
    kernels = re.findall(r"kernel void (\w+)\((.*?)\n    \}\n", code[: code.index("def call(")], re.DOTALL)
    return [name for name, text in kernels if name.startswith("generated_kernel") and _only_loads(text)]


def _only_loads(text: str) -> bool:
    values = [line.strip() for line in text.splitlines() if line.strip().startswith("auto tmp")]
    return bool(values) and all(re.match(r"auto tmp\d+ = (static_cast<\w+>\()?in_ptr\d+\[", value) for value in values)


def _call_function(code: str) -> ast.FunctionDef:
    functions = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef))
    return next(function for function in functions if function.name == "call")


def _call(node: ast.Call) -> AttentionCall:
    name = node.func.id  # type: ignore[attr-defined]
    role = next(role for role in _ROLES if name.startswith(f"flash_{role}_"))
    tensors: list[TensorArgument] = []
    integers: list[str] = []
    for argument in node.args:
        if isinstance(argument, ast.Call) and ast.unparse(argument.func) == "reinterpret_tensor":
            buffer, *layout = map(ast.unparse, argument.args)
            tensors.append(TensorArgument(buffer, *layout))
        elif isinstance(argument, ast.Name) and not argument.id.startswith(("s", "u", "ps")):
            tensors.append(TensorArgument(argument.id))
        else:
            integers.append(ast.unparse(argument))
    return AttentionCall(role, name, tuple(tensors), tuple(integers))
