"""The operators in plain torch: the oracle of the tests (with float64 inputs) and the operators' CPU kernels.

Materialises scores of (batch, heads, queries, keys). Half and bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import layout


def forward(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, scale: float, lower: int | None, upper: int | None
) -> tuple[Tensor, Tensor]:
    """out and logsumexp (natural log) of `flash_forward`; rows that see no key give out 0 and logsumexp -inf."""
    scores = _scores(q, k, key_mask, scale, lower, upper)
    maxima = scores.amax(-1, keepdim=True) if scores.shape[-1] else scores.new_zeros(*scores.shape[:-1], 1)
    maxima = torch.where(maxima == -torch.inf, 0.0, maxima)
    weights = torch.exp(scores - maxima)
    sums = weights.sum(-1, keepdim=True)
    out = torch.where(sums == 0, 0.0, (weights @ _per_query_head(v, q)) / sums)
    logsumexp = (maxima + torch.log(sums)).squeeze(-1)
    return layout.empty_out(q, v).copy_(out), layout.empty_logsumexp(q).copy_(logsumexp)


def backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    key_mask: Tensor | None,
    scale: float,
    lower: int | None,
    upper: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv. FlashAttention (arXiv:2205.14135), appendix B.2: dS = P * (dP - delta), delta = rowsum(dO * O)."""
    scores = _scores(q, k, key_mask, scale, lower, upper)
    seen = logsumexp.to(scores.dtype).unsqueeze(-1)
    weights = torch.where(seen == -torch.inf, 0.0, torch.exp(scores - seen))
    grad_out, out = grad_out.to(scores.dtype), out.to(scores.dtype)
    delta = (grad_out * out).sum(-1, keepdim=True)
    grad_weights = grad_out @ _per_query_head(v, q).mT
    # A key outside the band has weight 0, whatever its value: 0 * inf must not make it NaN.
    grad_scores = torch.where(scores == -torch.inf, 0.0, weights * (grad_weights - delta)) * scale
    dq = grad_scores @ _per_query_head(k, q)
    dk = _sum_groups(grad_scores.mT @ q.to(scores.dtype), k)
    dv = _sum_groups(weights.mT @ grad_out, k)
    return layout.empty_grad(q).copy_(dq), layout.empty_grad(k).copy_(dk), layout.empty_grad(v).copy_(dv)


def _compute_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _per_query_head(tensor: Tensor, q: Tensor) -> Tensor:
    """k or v with each head repeated for its group of query heads, in the dtype that is computed in."""
    groups = q.shape[1] // max(tensor.shape[1], 1)
    return tensor.to(_compute_dtype(q)).repeat_interleave(groups, 1)


def _sum_groups(grad: Tensor, k: Tensor) -> Tensor:
    groups = grad.shape[1] // max(k.shape[1], 1)
    return grad.unflatten(1, (k.shape[1], groups)).sum(2) if k.shape[1] else grad


def _scores(
    q: Tensor, k: Tensor, key_mask: Tensor | None, scale: float, lower: int | None, upper: int | None
) -> Tensor:
    scores = q.to(_compute_dtype(q)) @ _per_query_head(k, q).mT * scale
    offset = torch.arange(k.shape[2], device=q.device) - torch.arange(q.shape[2], device=q.device)[:, None]
    if lower is not None:
        scores = scores.masked_fill(offset < lower, -torch.inf)
    if upper is not None:
        scores = scores.masked_fill(offset > upper, -torch.inf)
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[:, None, None, :], -torch.inf)
    return scores
