"""What finding and replacing attention costs: CPU time of the pass within a cold torch.compile of a Llama.

It is the host's time, so it means the same on every engine whose device is mps, the simulated one included. CPU time
of this process: compilers in other processes do not count, which makes the pass's share larger than it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any
from unittest import mock

import torch

from inductor_mps_attention.matching import fusion_pass

from .contestants import OURS
from .engines.engine import Engine
from .measure import Measurement
from .problem import Problem

BATCH, LENGTH, VOCABULARY = 2, 40, 97
_HEADS: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
_TURNS = 3
_COUNTED = "process CPU time, cold torch.compile and first call"


def matching_cost(engine: Engine, case: Mapping[str, Any]) -> dict[str, Any]:
    """The pass, and the whole compilation, with its backward where `inner` is inductor.

    case: layers, implementation ("sdpa" or "eager" of transformers), dynamic, inner.
    """
    known = {"dtype": "float32", "batch": BATCH, "heads": 4, "kv_heads": 2, "head_dim": 16, "length": LENGTH}
    record: dict[str, Any] = {
        "problem": Problem.of({**known, "causal": True}).to_json(),
        "label": f"Llama of {case['layers']} layers, {case['implementation']}, "
        f"{'dynamic' if case['dynamic'] else 'static'}, inner {case['inner']}",
    }
    if engine.device != "mps":
        return record | {"results": {OURS: {"unable": "attention is found on the mps device alone"}}}
    found = [_cold(case) for _ in range(_TURNS)][1:]  # the first turn imports and fills torch's own caches
    ours, whole = (Measurement(tuple(turn), _COUNTED).to_json() for turn in zip(*found, strict=True))
    share = ours["median_s"] / whole["median_s"]
    per_layer = ours["median_s"] / case["layers"]
    note = f"the pass takes {1e3 * ours['median_s']:.0f} ms of {whole['median_s']:.1f} s, {100 * share:.2f} %"
    return record | {
        "results": {OURS: ours, "compile": whole},
        "share": share,
        "s_per_layer": per_layer,
        "note": f"{note}; {1e3 * per_layer:.1f} ms a layer",
    }


def _cold(case: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of the pass, and of everything."""
    model, ids = _llama(case), torch.randint(0, VOCABULARY, (BATCH, LENGTH), device="mps")
    torch.compiler.reset()
    spent: list[float] = []
    inductor = case["inner"] == "inductor"
    options = {"attention.inner": case["inner"]}
    compiled = torch.compile(model, backend="mps_attention", dynamic=case["dynamic"], options=options)
    uncached = torch._inductor.config.patch(force_disable_caches=True) if inductor else nullcontext()
    with mock.patch.object(fusion_pass, "fuse", _timed(fusion_pass.fuse, spent)), uncached:
        begin = time.process_time()
        loss = compiled(input_ids=ids, labels=ids).loss
        if inductor:
            loss.backward()
        return sum(spent), time.process_time() - begin


def _timed(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def timed(*args: Any) -> Any:
        begin = time.process_time()
        try:
            return function(*args)
        finally:
            spent.append(time.process_time() - begin)

    return timed


def _llama(case: Mapping[str, Any]) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=case["layers"],
        attn_implementation=case["implementation"], use_cache=False, **_HEADS,
    )  # fmt: skip
    model: torch.nn.Module = LlamaForCausalLM(config)
    return model.to("mps").train()
