"""Soundness of the band recogniser: whatever it claims is compared with the real mask, at many sizes of one graph."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch.fx import Interpreter, Node

from inductor_mps_attention.matching.bands import MaskReader, ProvedBand, Unknown
from inductor_mps_attention.matching.canonical import Op, canonical
from inductor_mps_attention.matching.nodes import argument, shape, value

A = torch.arange


class Claims:
    """A backend that reads the mask of the one SDPA call, and checks the claim with each run."""

    def __init__(self) -> None:
        self.bands: list[ProvedBand | Unknown] = []
        self.compared = 0

    def __call__(self, graph_module: Any, _: Any) -> Any:
        site = next((node for node in graph_module.graph.nodes if canonical(node) is Op.SDPA), None)
        mask = None if site is None else argument(site, 3, "attn_mask")
        if mask is None:
            return graph_module.forward
        queries, keys = shape(site.args[0])[-2], shape(site.args[1])[-2]
        try:
            roles = ("lead", "lead", "query", "key")
            claim: Any = MaskReader(graph_module.graph).band(mask, "keep", roles, queries, keys, False)
        except Unknown as unknown:
            claim = unknown
        self.bands.append(claim)

        def run(*inputs: Any) -> Any:
            if isinstance(claim, ProvedBand):
                self.check(graph_module, mask, site, claim, inputs)
            return graph_module.forward(*inputs)

        return run

    def check(self, graph_module: Any, mask: Node, site: Node, claim: ProvedBand, inputs: Any) -> None:
        sizes: dict[Any, int] = {}
        for node, given in zip(graph_module.graph.find_nodes(op="placeholder"), inputs, strict=True):
            example = value(node)
            pairs = (
                zip(example.shape, given.shape, strict=True) if isinstance(given, torch.Tensor) else [(example, given)]
            )
            sizes |= {symbol.node.expr: int(size) for symbol, size in pairs if isinstance(symbol, torch.SymInt)}
        values = Recording(graph_module)
        values.run(*inputs)
        queries, keys = (values.seen[site.args[place]].shape[-2] for place in (0, 1))
        real = values.seen[mask].expand(*values.seen[mask].shape[:-2], queries, keys)
        offset = A(keys) - A(queries)[:, None]
        claimed = torch.ones(queries, keys, dtype=torch.bool)
        if claim.lower is not None:
            claimed &= offset >= int(sympy.sympify(claim.lower).subs(sizes))
        if claim.upper is not None:
            claimed &= offset <= int(sympy.sympify(claim.upper).subs(sizes))
        assert bool((real == claimed).all()), f"{claim} is wrong at {queries} x {keys}"
        assert not claim.full_rows or bool(claimed.any(-1).all()), f"{claim} has an empty row at {queries} x {keys}"
        self.compared += 1


class Recording(Interpreter):
    def __init__(self, module: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.seen: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        self.seen[n] = super().run_node(n)
        return self.seen[n]


def claims_of(mask: Any, sizes: list[tuple[int, int]], dynamic: bool) -> Claims:
    torch._dynamo.reset()
    claims = Claims()

    def attention(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, k, attn_mask=mask(q.shape[2], k.shape[2]))

    compiled = torch.compile(attention, backend=claims, dynamic=dynamic)
    with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=64):
        for queries, keys in sizes:
            compiled(torch.randn(2, 2, queries, 4), torch.randn(2, 2, keys, 4))
    return claims


SIZES = [(7, 9), (9, 7), (2, 16), (5, 5)]
BANDS = {
    "tril": lambda q, k: torch.ones(q, k, dtype=torch.bool).tril(),
    "bottom-right": lambda q, k: torch.ones(q, k, dtype=torch.bool).tril(k - q),
    "window": lambda q, k: torch.ones(q, k, dtype=torch.bool).tril(1).triu(-3),
    "abs": lambda q, k: (A(q)[:, None] - A(k)).abs() <= 3,
    "slice of a larger tril": lambda q, k: torch.ones(64, 64, dtype=torch.bool).tril()[3 : 3 + q, :k],
    "negative slices": lambda q, k: torch.ones(64, 64, dtype=torch.bool).tril()[-q:, -k:],
    "gather": lambda q, k: A(k)[None].expand(2, -1)[A(2)[:, None, None, None], A(k)[None, None, None]] <= A(q)[:, None],
    "or all hidden": lambda q, k: (lambda m: m | torch.all(~m, dim=-1, keepdim=True))(A(k) <= A(q)[:, None]),
    "packed sequences": lambda q, k: (
        ((torch.diff(A(k)[None], prepend=A(k)[None, :1] - 1) != 1).cumsum(-1)[:, None, None, :] == 0)
        & (A(k) <= A(q)[:, None])
    ),
    "anti-causal": lambda q, k: A(k) >= A(q)[:, None],
}
NO_BANDS = {
    "prefix": lambda q, k: (A(k) <= A(q)[:, None]) | (A(k) < 3),
    "chunks": lambda q, k: (A(k) // 4) == (A(q) // 4)[:, None],
    "reversed": lambda q, k: A(k) + A(q)[:, None] <= q,
    "two bands": lambda q, k: (A(k) <= A(q)[:, None] - 2) | (A(k) >= A(q)[:, None] + 2),
    "wrapped int8": lambda q, k: A(300).to(torch.int8)[:k] <= A(q)[:, None],
    "rolled": lambda q, k: torch.ones(q, k, dtype=torch.bool).tril().roll(1, 0),
    "random": lambda q, k: torch.rand(q, k) > 0.01,
    "last column": lambda q, k: (A(k) <= A(q)[:, None]) | (A(k) == k - 1),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", BANDS)
def test_band(name, dynamic):
    claims = claims_of(BANDS[name], SIZES if dynamic else SIZES[:2], dynamic)
    assert all(isinstance(band, ProvedBand) for band in claims.bands), claims.bands
    assert claims.compared


@pytest.mark.parametrize("name", NO_BANDS)
def test_no_band(name):
    claims = claims_of(NO_BANDS[name], SIZES[:1], True)
    assert claims.bands
    assert all(isinstance(band, Unknown) for band in claims.bands)


def program(rng: random.Random, depth: int) -> str:
    """Python text of a random boolean (Q, K) mask."""
    shift = lambda: rng.choice([-3, -1, 0, 0, 1, 2, "Q-K", "K-Q", "K", "-Q"])  # noqa: E731
    if depth == 0:
        return rng.choice(
            [
                f"(A(K)[None] {rng.choice(['<=', '<', '>=', '>', '==', '!='])} A(Q)[:, None] + ({shift()}))",
                f"((A(Q)[:, None] - A(K)).abs() {rng.choice(['<=', '>'])} {rng.choice([1, 3])})",
                f"torch.ones(Q, K, dtype=torch.bool).{rng.choice(['tril', 'triu'])}({shift()})",
                f"(torch.triu(torch.full((Q, K), float('-inf')), {shift()}) {rng.choice(['== 0', '!= 0'])})",
                f"torch.ones(70, 70, dtype=torch.bool).tril(1)[{rng.choice(['', '1', '-Q'])}:][:Q, :K]",
                "(A(K) < 2)[None].expand(Q, K)",
                f"(A(K).clamp(max={rng.choice([3, 'K-1'])}) <= A(Q)[:, None])",
            ]
        )
    inner = program(rng, depth - 1)
    return rng.choice(
        [
            f"({inner} & {program(rng, depth - 1)})",
            f"({inner} | {program(rng, depth - 1)})",
            f"(~{inner})",
            f"torch.where({inner}, {program(rng, 0)}, {program(rng, 0)})",
            f"(lambda m: m | torch.all(~m, dim=-1, keepdim=True))({inner})",
        ]
    )


@pytest.mark.parametrize("seed", range(12))
def test_random_masks_are_never_claimed_wrongly(seed):
    rng = random.Random(seed)
    text = program(rng, rng.choice([0, 1, 1, 2]))
    space: dict[str, Any] = {"A": A, "torch": torch}
    exec(f"def mask(Q, K):\n    return {text}", space)
    sizes = [(rng.randint(2, 20), rng.randint(2, 20)) for _ in range(6)] + [(6, 6)]
    claims_of(space["mask"], sizes, True)
