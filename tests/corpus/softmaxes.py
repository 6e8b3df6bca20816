"""The softmax as module, method and function, by exponentials, shifted, and normalised late."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import case, matches
from .attentions import B, D, H, S, qkv


def scores(q, k):
    return q @ k.mT * 0.25


def spelled(softmax):
    return lambda q, k, v: softmax(scores(q, k)) @ v


def one(name, softmax, **facts):
    matches(f"softmax_{name}", spelled(softmax), qkv, scale=0.25, **facts)


one("function_keywords", lambda s: F.softmax(input=s, dim=-1))
one("function_stacklevel", lambda s: F.softmax(s, -1, _stacklevel=5))
one("torch_keywords", lambda s: torch.softmax(input=s, dim=3))
one("special", lambda s: torch.special.softmax(s, -1))
one("dim_3", lambda s: s.softmax(dim=3))
one("dim_of_the_rank", lambda s: s.softmax(s.ndim - 1))
one("dtype_of_itself", lambda s: F.softmax(s, dim=-1, dtype=s.dtype))
one("softmin_of_negated", lambda s: F.softmin(-s, dim=-1), tier="stretch")
one("log_method", lambda s: s.log_softmax(-1).exp())
one("log_torch", lambda s: torch.exp(torch.log_softmax(s, dim=-1)))
one("log_special", lambda s: torch.special.log_softmax(s, -1).exp())
one("log_module", lambda s: nn.LogSoftmax(dim=-1)(s).exp())
one("logsumexp", lambda s: torch.exp(s - torch.logsumexp(s, dim=-1, keepdim=True)))
one("logsumexp_unsqueezed", lambda s: (s - s.logsumexp(-1).unsqueeze(-1)).exp())
one("logsumexp_indexed", lambda s: (s - s.logsumexp(-1)[..., None]).exp())
one("exp_sum_unsqueezed", lambda s: (lambda e: e / e.sum(-1).unsqueeze(-1))(s.exp()))
one("exp_sum_indexed", lambda s: (lambda e: e / e.sum(-1)[..., None])(s.exp()))
one("exp_sum_functions", lambda s: (lambda e: torch.div(e, torch.sum(e, dim=-1, keepdim=True)))(torch.exp(s)))
one("exp_sum_reciprocal", lambda s: (lambda e: e * e.sum(-1, keepdim=True).reciprocal())(s.exp()), tier="stretch")
one("exp_sum_one_over", lambda s: (lambda e: e * (1.0 / e.sum(-1, keepdim=True)))(s.exp()), tier="stretch")
one("shift_amax", lambda s: (lambda e: e / e.sum(-1, keepdim=True))((s - s.amax(-1, keepdim=True)).exp()))
one("shift_amax_detached", lambda s: (lambda e: e / e.sum(-1, True))((s - s.amax(-1, True).detach()).exp()))
one("shift_max_pair", lambda s: (lambda e: e / e.sum(-1, True))(torch.exp(s - torch.max(s, -1, keepdim=True)[0])))
one("shift_max_unsqueezed", lambda s: (lambda e: e / e.sum(-1, True))((s - s.max(-1).values.unsqueeze(-1)).exp()))
one("shift_amax_indexed", lambda s: (lambda e: e / e.sum(-1)[..., None])((s - s.amax(-1)[..., None]).exp()))
one("shifted_before_softmax", lambda s: (s - s.amax(dim=-1, keepdim=True)).softmax(dim=-1))
one(
    "shifted_before_softmax_detached",
    lambda s: (s - s.amax(dim=-1, keepdim=True).detach()).softmax(dim=-1),
    source="PaLM-pytorch",
)
one("shifted_before_softmax_values", lambda s: F.softmax(s - s.max(-1, keepdim=True).values, -1), source="many ports")
one("shifted_by_detached_scores", lambda s: (s - s.detach().amax(-1, keepdim=True)).softmax(-1), tier="stretch")


def flat(device, dtype):
    return qkv(device, dtype, (B * H, S, D))


def late(divide):
    def function(q, k, v):
        s = scores(q, k)
        e = (s - s.amax(-1, keepdim=True)).exp()
        return divide(e, v)

    return function


matches("late_division", late(lambda e, v: (e @ v) / e.sum(-1, keepdim=True)), qkv, scale=0.25)
matches(
    "late_division_unsqueezed", late(lambda e, v: torch.matmul(e, v) / e.sum(dim=-1).unsqueeze(-1)), qkv, scale=0.25
)
matches("late_division_indexed", late(lambda e, v: torch.div(e @ v, e.sum(-1)[..., None])), qkv, scale=0.25)
matches("late_division_of_bmm", late(lambda e, v: torch.bmm(e, v) / torch.sum(e, -1, keepdim=True)), flat, scale=0.25)
matches(
    "late_division_of_einsum",
    late(lambda e, v: torch.einsum("bhij,bhjd->bhid", e, v) / e.sum(-1, keepdim=True)),
    qkv,
    scale=0.25,
)
matches("late_division_in_place", late(lambda e, v: (e @ v).div_(e.sum(-1, keepdim=True))), qkv, scale=0.25)


@case(True, "nn.Softmax as a module", scale=0.25)
def softmax_module(dev, dt):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attend = nn.Softmax(dim=-1)
            self.dropout = nn.Dropout(0.0)

        def forward(self, q, k, v):
            return torch.matmul(self.dropout(self.attend(torch.matmul(q, k.transpose(-1, -2)) * D**-0.5)), v)

    return Attention(), qkv(dev, dt)


@case(True, "nn.Softmax of the last of 3 dims", scale=0.25)
def softmax_module_dim_2(dev, dt):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.softmax = nn.Softmax(dim=2)

        def forward(self, q, k, v):
            return torch.bmm(self.softmax(torch.bmm(q, k.transpose(1, 2)) / 4), v)

    return Attention(), flat(dev, dt)
