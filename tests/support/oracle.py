"""float64 attention on the CPU, differentiated by autograd: shares nothing with the operators' own reference."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Oracle:
    """Everything of one attention, float64 on the CPU."""

    out: Tensor
    logsumexp: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor
    largest_score: float
    """The largest magnitude of a scaled score that is seen."""
    out_least: Tensor
    dq_least: Tensor
    dk_least: Tensor
    dv_least: Tensor
    """What an error of each result is measured by at least, elementwise: where the terms of its sum cancel, an error
    relative to what is left says nothing. For out and dv the root of the sum of the terms' squares, which is how
    independent roundings of the weights add up; for dq and dk, a quarter of the sum of the terms without their signs:
    the rounding of out enters all terms of a row by delta, with one sign, and the gradient of the score is rounded
    too, which is two half units in the last place of the terms."""


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad_out: Tensor,
    *,
    scale: float,
    lower: int | None = None,
    upper: int | None = None,
    key_mask: Tensor | None = None,
) -> Oracle:
    """softmax(scale * q @ k.mT, inside the band) @ v, rows without a key being 0, and its gradients for grad_out.

    key_mask: bool (batch, keys), False where a key is seen by nobody.
    """
    q, k, v = (t.detach().cpu().double().requires_grad_() for t in (q, k, v))
    groups = q.shape[1] // max(k.shape[1], 1)
    keys, values = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    offset = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if lower is not None:
        seen &= offset >= lower
    if upper is not None:
        seen &= offset <= upper
    seen = seen[None, None]
    if key_mask is not None:
        seen = seen & key_mask.cpu()[:, None, None, :]
    scores = (q @ keys.mT * scale).masked_fill(~seen, -torch.inf)
    empty = ~seen.any(-1, keepdim=True)
    weights = scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)
    out = weights @ values
    out.backward(grad_out.detach().cpu().double())
    grad_out = grad_out.detach().cpu().double()
    delta_terms = (grad_out * out).abs().sum(-1, keepdim=True)
    terms = (abs(scale) * weights * (grad_out.abs() @ values.abs().mT + delta_terms)).detach()
    dq_terms, dk_terms = terms @ keys.detach().abs(), terms.mT @ q.detach().abs()
    out_squares, dv_squares = weights.detach() ** 2 @ values.detach() ** 2, weights.detach().mT ** 2 @ grad_out**2
    if k.shape[1]:
        dk_terms, dv_squares = (sums.unflatten(1, (k.shape[1], groups)).sum(2) for sums in (dk_terms, dv_squares))
    return Oracle(
        out.detach(),
        torch.logsumexp(scores, -1).detach(),
        q.grad,
        k.grad,
        v.grad,
        scores.detach().abs().masked_fill(~seen, 0).amax().item() if scores.numel() else 0.0,
        out_squares.sqrt(),
        dq_terms / 4,
        dk_terms / 4,
        dv_squares.sqrt(),
    )
