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
    dq_terms: Tensor
    dk_terms: Tensor
    """dq and dk with every term of their sums taken without its sign: they bound what rounding can leave."""


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad_out: Tensor,
    *,
    scale: float,
    lower: int | None = None,
    upper: int | None = None,
) -> Oracle:
    """softmax(scale * q @ k.mT, inside the band) @ v, rows without a key being 0, and its gradients for grad_out."""
    q, k, v = (t.detach().cpu().double().requires_grad_() for t in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    keys, values = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    offset = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if lower is not None:
        seen &= offset >= lower
    if upper is not None:
        seen &= offset <= upper
    scores = (q @ keys.mT * scale).masked_fill(~seen, -torch.inf)
    empty = ~seen.any(-1)
    weights = scores.masked_fill(empty[:, None], 0).softmax(-1).masked_fill(empty[:, None], 0)
    out = weights @ values
    out.backward(grad_out.detach().cpu().double())
    grad_out = grad_out.detach().cpu().double()
    delta_terms = (grad_out * out).abs().sum(-1, keepdim=True)
    terms = (abs(scale) * weights * (grad_out.abs() @ values.abs().mT + delta_terms)).detach()
    dq_terms, dk_terms = terms @ keys.detach().abs(), terms.mT @ q.detach().abs()
    dk_terms = dk_terms.unflatten(1, (k.shape[1], groups)).sum(2)
    return Oracle(
        out.detach(),
        torch.logsumexp(scores, -1).detach(),
        q.grad,
        k.grad,
        v.grad,
        dq_terms,
        dk_terms,
    )
