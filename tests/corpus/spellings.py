"""One attention, `softmax(q @ k.mT * s) @ v`, in the operations that people write it with."""

import math

import torch
import torch.nn.functional as F

from . import matches
from .attentions import B, D, H, S, qkv


def flat(device, dtype):
    return qkv(device, dtype, (B * H, S, D))


def seq_major(device, dtype):
    return qkv(device, dtype, (B, S, H, D))


def shared_keys(device, dtype):
    """q (b, s, d); k and v are the same rows for the whole batch."""
    (q,) = qkv(device, dtype, (B, S, D), 1)
    return (q, *qkv(device, dtype, (20, D), 2))


# ---- products
matches(
    "linear_products", lambda q, k, v: F.linear(F.linear(q, k).mul(0.25).softmax(-1), v.t()), shared_keys, scale=0.25
)
matches("linear_scores", lambda q, k, v: (F.linear(q, k) * 0.25).softmax(-1) @ v, shared_keys, scale=0.25)
matches(
    "matmul_keywords",
    lambda q, k, v: torch.matmul(other=v, input=torch.softmax(torch.matmul(other=k.mT, input=q) / 4, dim=-1)),
    qkv,
    scale=0.25,
)
matches(
    "bmm_keywords",
    lambda q, k, v: torch.bmm(input=torch.softmax(torch.bmm(q, mat2=k.transpose(2, 1)) * 0.25, 2), mat2=v),
    flat,
    scale=0.25,
)
matches("bmm_methods", lambda q, k, v: q.bmm(k.mT).mul(0.25).softmax(2).bmm(v), flat, scale=0.25)
matches(
    "linalg_matmul",
    lambda q, k, v: torch.linalg.matmul((torch.linalg.matmul(q, k.mT) * 0.25).softmax(-1), v),
    qkv,
    scale=0.25,
)
matches("dunder_matmul", lambda q, k, v: q.__matmul__(k.mT).mul(0.25).softmax(-1).__matmul__(v), qkv, scale=0.25)
matches(
    "baddbmm_of_empty",
    lambda q, k, v: torch.bmm(
        torch.baddbmm(torch.empty(B * H, S, S, dtype=q.dtype, device=q.device), q, k.mT, beta=0, alpha=0.25).softmax(
            -1
        ),
        v,
    ),
    flat,
    scale=0.25,
    source="diffusers AttnProcessor",
)
matches(
    "baddbmm_of_zeros",
    lambda q, k, v: torch.bmm(
        torch.baddbmm(
            torch.zeros(q.shape[0], q.shape[1], k.shape[1], dtype=q.dtype, device=q.device),
            q,
            k.mT,
            beta=1.0,
            alpha=0.25,
        ).softmax(-1),
        v,
    ),
    flat,
    scale=0.25,
    source="GPT-NeoX of older transformers",
)
matches(
    "baddbmm_method",
    lambda q, k, v: q.new_zeros(()).baddbmm(q, k.mT, beta=0.0, alpha=0.25).softmax(-1).bmm(v),
    flat,
    scale=0.25,
)
matches(
    "einsum_upper_case",
    lambda q, k, v: torch.einsum("BHQK,BHKD->BHQD", (torch.einsum("BHQD,BHKD->BHQK", q, k) * 0.25).softmax(-1), v),
    qkv,
    scale=0.25,
)
matches(
    "einsum_odd_letters",
    lambda q, k, v: torch.einsum("xzap,xzpw->xzaw", (torch.einsum("xzaw,xzpw->xzap", q, k) / 4).softmax(-1), v),
    qkv,
    scale=0.25,
)
matches(
    "einsum_swapped_operands",
    lambda q, k, v: torch.einsum("bhjd,bhij->bhid", v, (torch.einsum("bhjd,bhid->bhij", k, q) * 0.25).softmax(-1)),
    qkv,
    scale=0.25,
)
matches(
    "einsum_of_a_list",
    lambda q, k, v: torch.einsum("bhij,bhjd->bhid", [(torch.einsum("bhid,bhjd->bhij", [q, k]) * 0.25).softmax(-1), v]),
    qkv,
    scale=0.25,
)
matches(
    "einsum_without_arrow",
    lambda q, k, v: torch.einsum("...qk,...kz->...qz", (torch.einsum("...kz,...qz", k, q).mT * 0.25).softmax(-1), v),
    qkv,
    scale=0.25,
)
matches(
    "einsum_ellipsis_leading_heads",
    lambda q, k, v: torch.einsum(
        "...hqk,...khd->...qhd", (torch.einsum("...qhd,...khd->...hqk", q, k) * 0.25).softmax(-1), v
    ),
    seq_major,
    scale=0.25,
)
matches(
    "einsum_heads_last",
    lambda q, k, v: torch.einsum("bijh,bjhd->bihd", (torch.einsum("bihd,bjhd->bijh", q, k) * 0.25).softmax(dim=2), v),
    seq_major,
    scale=0.25,
)
matches(
    "einsum_heads_first",
    lambda q, k, v: torch.einsum("hbij,bjhd->bihd", (torch.einsum("bihd,bjhd->hbij", q, k) * 0.25).softmax(-1), v),
    seq_major,
    scale=0.25,
)
matches(
    "einsum_keys_before_queries",
    lambda q, k, v: torch.einsum("bhji,bhjd->bhid", (torch.einsum("bhid,bhjd->bhji", q, k) * 0.25).softmax(-2), v),
    qkv,
    scale=0.25,
)
matches(
    "einsum_output_transposed",
    lambda q, k, v: torch.einsum(
        "bhij,bhjd->bihd", (torch.einsum("bhid,bhjd->bhij", q, k) * 0.25).softmax(-1), v
    ).flatten(2),
    qkv,
    scale=0.25,
)
matches(
    "einsum_scores_bmm_output",
    lambda q, k, v: torch.bmm((torch.einsum("nid,njd->nij", q, k) * 0.25).softmax(-1), v),
    flat,
    scale=0.25,
)

# ---- transposes
matches("adjoint", lambda q, k, v: (q @ k.adjoint() * 0.25).softmax(-1) @ v, qkv, scale=0.25)
matches("conjugate_transpose", lambda q, k, v: (q @ k.mH * 0.25).softmax(-1) @ v, qkv, scale=0.25)
matches("swapdims", lambda q, k, v: (q @ torch.swapdims(k, 3, 2) * 0.25).softmax(-1) @ v, qkv, scale=0.25)
matches("moveaxis", lambda q, k, v: (q @ torch.moveaxis(k, 2, 3) * 0.25).softmax(-1) @ v, qkv, scale=0.25)
matches("movedim_of_lists", lambda q, k, v: (q @ k.movedim((2, 3), (3, 2)) * 0.25).softmax(-1) @ v, qkv, scale=0.25)
matches(
    "permute_of_a_tuple", lambda q, k, v: (q @ torch.permute(k, (0, 1, -1, -2)) * 0.25).softmax(-1) @ v, qkv, scale=0.25
)
matches(
    "transpose_keywords", lambda q, k, v: (q @ k.transpose(dim0=-1, dim1=-2) * 0.25).softmax(-1) @ v, qkv, scale=0.25
)
matches("transposes_that_cancel", lambda q, k, v: (q @ k.mT.mT.mT * 0.25).mT.mT.softmax(-1) @ v, qkv, scale=0.25)
matches("transposed_both_products", lambda q, k, v: (v.mT @ (k @ q.mT * 0.25).softmax(-2)).mT, qkv, scale=0.25)
matches(
    "keys_times_queries",
    lambda q, k, v: torch.matmul((torch.matmul(k, q.transpose(2, 3)) / 4.0).softmax(dim=2).transpose(2, 3), v),
    qkv,
    scale=0.25,
)
matches(
    "keys_stored_transposed",
    lambda q, k, v: (q @ k * 0.25).softmax(-1) @ v,
    lambda d, t: (qkv(d, t)[0], qkv(d, t, (B, H, D, S))[1], qkv(d, t)[2]),
    scale=0.25,
)
matches(
    "softmax_before_a_transpose_back",
    lambda q, k, v: (k @ q.mT * 0.25).transpose(-1, -2).softmax(-1) @ v,
    qkv,
    scale=0.25,
)

# ---- scale
matches("scale_power", lambda q, k, v: (q @ k.mT * q.size(-1) ** -0.5).softmax(-1) @ v, qkv, scale=0.25)
matches("scale_root_divides", lambda q, k, v: ((q @ k.mT) / q.shape[-1] ** 0.5).softmax(-1) @ v, qkv, scale=0.25)
matches(
    "scale_reciprocal_root",
    lambda q, k, v: ((1.0 / math.sqrt(k.size(-1))) * (q @ k.mT)).softmax(-1) @ v,
    qkv,
    scale=0.25,
)
matches(
    "scale_fourth_roots",
    lambda q, k, v: ((q / math.sqrt(math.sqrt(D))) @ (k / math.sqrt(math.sqrt(D))).mT).softmax(-1) @ v,
    qkv,
    scale=1.0,
)
matches("scale_on_k_transposed", lambda q, k, v: (q @ (k.mT * 0.25)).softmax(-1) @ v, qkv, scale=1.0)
matches("scale_on_q_and_scores", lambda q, k, v: ((q * 0.5) @ k.mT * 0.5).softmax(-1) @ v, qkv, scale=0.5)
matches(
    "scale_root_of_tensor",
    lambda q, k, v: ((q @ k.mT) / torch.tensor(float(D)).sqrt()).softmax(-1) @ v,
    qkv,
    scale_on_q=True,
)
matches(
    "scale_reciprocal_root_of_tensor",
    lambda q, k, v: ((q @ k.mT) * torch.rsqrt(torch.tensor(float(D)))).softmax(-1) @ v,
    qkv,
    scale_on_q=True,
)
matches("scale_full", lambda q, k, v: (q @ k.mT * torch.full((), 0.25)).softmax(-1) @ v, qkv, scale_on_q=True)
matches(
    "scale_full_like_weights",
    lambda q, k, v: ((q @ k.mT) / torch.full([], q.size(-1) ** 0.5, dtype=q.dtype, device=q.device)).softmax(-1) @ v,
    qkv,
    scale_on_q=True,
    source="GPT-2 of transformers",
)
matches("scale_whole_tensor", lambda q, k, v: (q @ k.mT / torch.tensor(4)).softmax(-1) @ v, qkv, scale_on_q=True)
matches("scale_truediv_out_of_place", lambda q, k, v: torch.divide(q @ k.mT, 4).softmax(-1) @ v, qkv, scale=0.25)
matches("scale_divided_in_place", lambda q, k, v: (q @ k.mT).div_(4.0).softmax(-1) @ v, qkv, scale=0.25)
matches("scale_integer_head_count", lambda q, k, v: (q @ k.mT / (D // 4)).softmax(-1) @ v, qkv, scale=0.25)
matches("scale_negated_twice", lambda q, k, v: (-(q @ k.mT) * -0.25).softmax(-1) @ v, qkv, scale=0.25)
matches("scale_of_negated_keys", lambda q, k, v: (q @ (-k).mT * -0.25).softmax(-1) @ v, qkv, scale=-0.25)
matches("shift_by_a_number", lambda q, k, v: (q @ k.mT * 0.25 - 3.0).softmax(-1) @ v, qkv, scale=0.25)
matches("added_zero", lambda q, k, v: (q @ k.mT * 0.25 + 0.0).softmax(-1) @ v, qkv, scale=0.25)


def statement_in_place(q, k, v):
    scores = q @ k.mT
    scores /= 4.0
    return scores.softmax(-1) @ v


def two_statements_in_place(q, k, v):
    scores = torch.bmm(q, k.transpose(1, 2))
    scores.div_(2.0)
    scores.mul_(0.5)
    return torch.bmm(torch.softmax(scores, dim=-1), v)


matches("scale_statement_in_place", statement_in_place, qkv, scale=0.25)
matches("scale_two_statements_in_place", two_statements_in_place, flat, scale=0.25)

# ---- what stands around the weights
matches(
    "contiguous_everywhere",
    lambda q, k, v: (
        ((q @ k.mT.contiguous()).contiguous() * 0.25).softmax(-1).contiguous().matmul(v.contiguous()).contiguous()
    ),
    qkv,
    scale=0.25,
)
matches("cloned_scores", lambda q, k, v: (q @ k.mT).clone().mul(0.25).softmax(-1).clone() @ v, qkv, scale=0.25)
matches("type_as_the_values", lambda q, k, v: (q @ k.mT * 0.25).softmax(-1).type_as(v) @ v, qkv, scale=0.25)
matches("to_the_device_and_dtype_of_v", lambda q, k, v: (q @ k.mT * 0.25).softmax(-1).to(v) @ v, qkv, scale=0.25)
matches(
    "dropout_off_positional", lambda q, k, v: F.dropout((q @ k.mT * 0.25).softmax(-1), 0.5, False) @ v, qkv, scale=0.25
)
matches(
    "dropout_of_zero_torch",
    lambda q, k, v: torch.dropout((q @ k.mT * 0.25).softmax(-1), 0.0, True) @ v,
    qkv,
    scale=0.25,
)
matches(
    "dropout_of_zero_in_place",
    lambda q, k, v: F.dropout((q @ k.mT * 0.25).softmax(-1), 0.0, True, True) @ v,
    qkv,
    scale=0.25,
)
matches(
    "unsqueezed_and_squeezed",
    lambda q, k, v: (q[:, None] @ k[:, None].mT * 0.25).softmax(-1).squeeze(1) @ v,
    qkv,
    scale=0.25,
)
matches("output_added_to", lambda q, k, v: ((q @ k.mT * 0.25).softmax(-1) @ v).add_(1.0), qkv, scale=0.25)
matches("output_scaled", lambda q, k, v: 2 * ((q @ k.mT * 0.25).softmax(-1) @ v) / 3, qkv, scale=0.25)
matches(
    "shapes_are_read",
    lambda q, k, v: (lambda s: s.softmax(s.dim() - 1).view(s.shape) @ v)(q @ k.mT * 0.25),
    qkv,
    scale=0.25,
)
