"""Text generated with a cache: prefill and every decode step are fused, and the tokens are those of eager.

transformers builds the mask of a dynamic cache in the graph, and that of a static one before it: with SDPA as booleans
of (batch, 1, queries, slots), of which a decode step's is a key mask whatever it holds; in its eager attention as
numbers that are added to the scores, of which nothing can be proved.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from inductor_mps_attention.config import Options
from inductor_mps_attention.errors import Reason
from inductor_mps_attention.matching import fusion_pass
from inductor_mps_attention.matching.site import Site

from .test_models import gpt2, llama

NEW_TOKENS = 5
Prompt = tuple[Tensor, Tensor | None]


def generate(model: nn.Module, prompt: Prompt, cache: str) -> Tensor:
    """disable_compile: transformers would compile the forward once more by itself."""
    ids, mask = prompt
    given: dict[str, Any] = {} if mask is None else {"attention_mask": mask}
    return model.generate(
        ids, cache_implementation=cache, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False,
        disable_compile=True, pad_token_id=0, **given,
    )  # fmt: skip


def fused_steps(model: nn.Module, prompt: Prompt, cache: str, key_padding: bool) -> list[list[Site]]:
    """The sites of each graph that generation compiled, after its tokens were found to be eager's."""
    model = model.eval()
    model.config.use_cache = True
    model.generation_config.use_cache = True
    expected = generate(copy.deepcopy(model), prompt, cache)
    steps: list[list[Site]] = []

    def backend(graph_module: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
        steps.append(fusion_pass.run(graph_module, Options(key_padding=key_padding), ("cpu",)))
        return graph_module.forward

    model.forward = torch.compile(model.forward, backend=backend)
    torch.testing.assert_close(generate(model, prompt, cache), expected, rtol=0, atol=0)
    return steps


def prompt(padded: bool = False) -> Prompt:
    ids = torch.randint(3, 50, (2, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    return ids, mask if padded else None


def declined(steps: list[list[Site]]) -> list[str]:
    return [str(site.reasons[0]) for sites in steps for site in sites if not site.fused]


@pytest.mark.parametrize("model", [gpt2, llama])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("padded", [False, True])
def test_dynamic_cache(model: Callable[[str], nn.Module], implementation: str, padded: bool) -> None:
    """Prefill, the first step, and one graph for all further steps, whatever the length of the cache."""
    steps = fused_steps(model(implementation), prompt(padded), "dynamic", key_padding=padded)
    assert [len(sites) for sites in steps] == [2, 2, 2]
    assert not declined(steps)


@pytest.mark.parametrize("model", [gpt2, llama])
def test_static_cache(model: Callable[[str], nn.Module]) -> None:
    steps = fused_steps(model("sdpa"), prompt(), "static", key_padding=True)
    assert [len(sites) for sites in steps] == [2, 2]
    assert not declined(steps)


def test_decode_steps_of_a_static_cache_want_key_padding() -> None:
    prefill, decode = fused_steps(llama("sdpa"), prompt(), "static", key_padding=False)
    assert not declined([prefill])
    assert {reason.reason for site in decode for reason in site.reasons} == {Reason.MASK}
    assert all("attention.key_padding=True" in text for text in declined([decode]))


def test_numbers_added_from_outside_are_no_mask() -> None:
    """They might be any bias: a static cache with eager attention."""
    steps = fused_steps(llama("eager"), prompt(), "static", key_padding=True)
    assert len(declined(steps)) == 4
    assert all("depends on input" in text for text in declined(steps))
