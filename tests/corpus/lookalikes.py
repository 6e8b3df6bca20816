"""Functions that look like attention, and are another function of q, k and v."""

import math

import torch
import torch.nn.functional as F

from . import matches, trap
from .attentions import B, H, S, qkv


def square(device, dtype):
    """All sizes equal: nothing but the axes tells right from wrong."""
    return qkv(device, dtype, (8, 8, 8, 8))


def scores(q, k):
    return q @ k.mT * 0.25


def of_scores(change):
    return lambda q, k, v: change(scores(q, k)).softmax(-1) @ v


def of_weights(change):
    return lambda q, k, v: change(scores(q, k).softmax(-1)) @ v


# ---- axes
trap("t_softmax_dim_0", lambda q, k, v: scores(q, k).softmax(0) @ v, square, "SOFTMAX_AXIS")
trap("t_softmax_dim_1_function", lambda q, k, v: F.softmax(scores(q, k), dim=1) @ v, square, "SOFTMAX_AXIS")
trap("t_softmax_dim_minus_2_torch", lambda q, k, v: torch.softmax(scores(q, k), dim=-2) @ v, square, "SOFTMAX_AXIS")
trap("t_softmax_over_queries_of_keys", lambda q, k, v: (k @ q.mT * 0.25).softmax(-1).mT @ v, square, "SOFTMAX_AXIS")
trap(
    "t_softmax_implicit_dim",
    lambda q, k, v: F.softmax(torch.bmm(q, k.mT), dim=0) @ v,
    lambda d, t: qkv(d, t, (8, 8, 8)),
    "SOFTMAX_AXIS",
)
trap(
    "t_exp_sum_over_queries",
    lambda q, k, v: (lambda e: e / e.sum(-2, keepdim=True))(scores(q, k).exp()) @ v,
    square,
    "SOFTMAX_AXIS",
)
trap("t_exp_sum_over_all", lambda q, k, v: (lambda e: e / e.sum())(scores(q, k).exp()) @ v, square, None)
trap(
    "t_exp_sum_over_two_axes",
    lambda q, k, v: (lambda e: e / e.sum((-1, -2), keepdim=True))(scores(q, k).exp()) @ v,
    square,
    None,
)
trap("t_log_softmax_over_queries", lambda q, k, v: scores(q, k).log_softmax(-2).exp() @ v, square, "SOFTMAX_AXIS")
trap(
    "t_unsqueezed_sum_in_the_wrong_place",
    lambda q, k, v: (lambda e: e / e.sum(-1).unsqueeze(-2))(scores(q, k).exp()) @ v,
    square,
    None,
)
trap(
    "t_shift_by_the_queries_maximum",
    lambda q, k, v: (lambda s: s - s.amax(-2, keepdim=True))(scores(q, k)).softmax(-1) @ v,
    square,
    "SCORE_MODIFIED",
)
trap(
    "t_shifted_minimum_of_queries",
    lambda q, k, v: (lambda s: s - s.amax(-1).unsqueeze(-2))(scores(q, k)).softmax(-1) @ v,
    square,
    "SCORE_MODIFIED",
)
matches("keys_with_heads_summed", lambda q, k, v: (q @ k.transpose(1, 2) * 0.25).softmax(-1) @ v, square, scale=0.25)
trap(
    "t_heads_attend_to_heads",
    lambda q, k, v: ((q.transpose(1, 2) @ k.transpose(1, 2).mT) * 0.25).softmax(-2) @ v.transpose(1, 2),
    square,
    "SOFTMAX_AXIS",
)
trap(
    "t_second_product_over_queries",
    lambda q, k, v: torch.einsum("bhij,bhid->bhjd", scores(q, k).softmax(-1), v),
    square,
    "SOFTMAX_AXIS",
)
trap(
    "t_second_product_over_heads",
    lambda q, k, v: torch.einsum("bhij,bhjd->bjid", scores(q, k).softmax(-1), v),
    square,
    None,
)
trap(
    "t_second_product_mixes_heads",
    lambda q, k, v: torch.einsum("bhij,bgjd->bhgid", scores(q, k).softmax(-1), v),
    square,
    None,
)
matches(
    "values_of_another_head",
    lambda q, k, v: scores(q, k).softmax(-1) @ v.transpose(0, 1),
    lambda d, t: qkv(d, t, (4, 4, 8, 8)),
    scale=0.25,
)
trap(
    "t_heads_summed_in_the_scores",
    lambda q, k, v: torch.einsum("bij,bhjd->bhid", (torch.einsum("bhid,bhjd->bij", q, k) * 0.25).softmax(-1), v),
    qkv,
    "PRODUCT",
)
trap("t_dims_not_summed", lambda q, k, v: (torch.einsum("bhid,bhjd->bhijd", q, k)).softmax(-2).sum(-1) @ v, qkv, None)
trap("t_weights_flipped", of_weights(lambda w: w.flip(-1)), qkv, "WEIGHTS_MODIFIED")
trap("t_weights_rolled", of_weights(lambda w: w.roll(1, -1)), qkv, "WEIGHTS_MODIFIED")
trap("t_weights_transposed", of_weights(lambda w: w.mT), qkv, "SOFTMAX_AXIS")
trap(
    "t_scores_reshaped_across_axes",
    lambda q, k, v: scores(q, k).reshape(8, 8, 64).softmax(-1).view(8, 8, 8, 8) @ v,
    square,
    "LAYOUT",
)
# An attention, of each head with the values of another: batch and heads change places.
matches(
    "heads_reordered_by_a_view",
    lambda q, k, v: scores(q, k).transpose(0, 1).reshape(64, 8, 8).softmax(-1).view(8, 8, 8, 8) @ v,
    square,
    scale=0.25,
)
trap(
    "t_heads_reordered_by_a_view_alone",
    lambda q, k, v: scores(q, k).transpose(0, 1).reshape(64, 8, 8).softmax(-1).view(64, 8, 8) @ v.flatten(0, 1),
    square,
    "LAYOUT",
)
trap(
    "t_relative_shift",
    of_scores(lambda s: F.pad(s, (1, 0)).reshape(B, H, S + 1, S)[:, :, 1:]),
    qkv,
    "SCORE_MODIFIED",
    source="Transformer-XL",
)
trap("t_scores_sliced", lambda q, k, v: scores(q, k)[..., :8].softmax(-1) @ v[..., :8, :], qkv, "SCORE_MODIFIED", n=0)
trap("t_weights_sliced", of_weights(lambda w: w[..., :8] @ w[..., :8].mT), qkv, None)

# ---- the scores are not softmax's only input
trap("t_softcap", of_scores(lambda s: 30.0 * torch.tanh(s / 30.0)), qkv, "SCORE_MODIFIED", source="Gemma 2")
trap("t_softcap_method", of_scores(lambda s: s.div(5).tanh().mul(5)), qkv, "SCORE_MODIFIED")
trap("t_scores_clamped", of_scores(lambda s: s.clamp(-1, 1)), qkv, "SCORE_MODIFIED", source="Falcon, SwinV2")
trap(
    "t_scores_clamped_at_finfo",
    of_scores(lambda s: torch.max(s, torch.tensor(0.5))),
    qkv,
    "SCORE_MODIFIED",
    source="OPT of older transformers",
)
trap("t_scores_squared", of_scores(lambda s: s * s), qkv, "SCORE_MODIFIED")
trap("t_scores_power", of_scores(lambda s: s.pow(2)), qkv, "SCORE_MODIFIED")
trap("t_scores_absolute", of_scores(lambda s: s.abs()), qkv, "SCORE_MODIFIED")
trap("t_scores_relu", of_scores(F.relu), qkv, "SCORE_MODIFIED")
trap("t_scores_dropout", of_scores(lambda s: F.dropout(s, 0.5)), qkv, "SCORE_MODIFIED", random=True)
trap("t_scores_normalised", of_scores(lambda s: F.layer_norm(s, (S,))), qkv, "SCORE_MODIFIED")
trap(
    "t_scores_standardised",
    of_scores(lambda s: s - s.mean(-1, keepdim=True) * 0.0 + s.std(-1, keepdim=True) * s),
    qkv,
    None,
)
trap("t_scores_rounded", of_scores(lambda s: s.round()), qkv, "SCORE_MODIFIED", rounds=True)
trap("t_scores_floor_divided", of_scores(lambda s: torch.div(s, 0.3, rounding_mode="floor")), qkv, "SCORE_MODIFIED")
trap("t_scores_divide_a_number", of_scores(lambda s: 1.0 / (s.abs() + 1)), qkv, "SCORE_MODIFIED")
trap("t_scores_subtracted_twice", of_scores(lambda s: s - 2 * s.amax(-1, keepdim=True) * s), qkv, None)
trap("t_scores_as_whole_numbers", of_scores(lambda s: s.int().to(s.dtype)), qkv, "CAST", rounds=True)
trap("t_scores_as_half", lambda q, k, v: scores(q, k).half().softmax(-1).to(v.dtype) @ v, qkv, "CAST", rounds=True)
trap(
    "t_scores_through_bfloat16",
    lambda q, k, v: scores(q, k).bfloat16().to(v.dtype).softmax(-1) @ v,
    qkv,
    "CAST",
    rounds=True,
)
trap(
    "t_weights_through_half", lambda q, k, v: scores(q, k).softmax(-1).half().to(v.dtype) @ v, qkv, "CAST", rounds=True
)
trap(
    "t_softmax_in_half",
    lambda q, k, v: F.softmax(scores(q, k), -1, dtype=torch.bfloat16).to(v.dtype) @ v,
    qkv,
    "CAST",
    rounds=True,
)
trap("t_multiplied_with_another_product", lambda q, k, v: (scores(q, k) * (k @ q.mT)).softmax(-1) @ v, qkv, None)
trap("t_second_product_added", lambda q, k, v: (scores(q, k) + k @ q.mT).softmax(-1) @ v, qkv, "SCORE_MODIFIED")
trap("t_scale_zero", lambda q, k, v: (q @ k.mT * 0.0).softmax(-1) @ v, qkv, "SCALE")
trap("t_scale_infinite", lambda q, k, v: (q @ k.mT * math.inf).softmax(-1) @ v, qkv, "SCALE")
trap("t_negative_distance", lambda q, k, v: (-torch.cdist(q, k)).softmax(-1) @ v, qkv, None)
trap(
    "t_squared_norms_subtracted",
    lambda q, k, v: (scores(q, k) - k.square().sum(-1)[..., None, :]).softmax(-1) @ v,
    qkv,
    None,
)
trap(
    "t_mean_of_two_attentions",
    lambda q, k, v: (0.5 * scores(q, k).softmax(-1) + 0.5 * (k @ q.mT).softmax(-1)) @ v,
    qkv,
    None,
)
trap(
    "t_difference_of_two_attentions",
    lambda q, k, v: (scores(q, k).softmax(-1) - 0.3 * (k @ q.mT).softmax(-1)) @ v,
    qkv,
    None,
    source="Differential Transformer",
)

# ---- no softmax, or none alone
trap("t_relu_attention", lambda q, k, v: F.relu(scores(q, k)) @ v, qkv, None)
trap("t_squared_relu_attention", lambda q, k, v: F.relu(scores(q, k)).square() @ v / S, qkv, None)
trap(
    "t_sigmoid_normalised",
    lambda q, k, v: (lambda w: w / w.sum(-1, keepdim=True))(torch.sigmoid(scores(q, k))) @ v,
    qkv,
    None,
)
trap("t_no_softmax", lambda q, k, v: scores(q, k) @ v, qkv, None)
trap("t_exp_without_sum", lambda q, k, v: scores(q, k).exp() @ v, qkv, None)
trap("t_exp2", lambda q, k, v: (lambda e: e / e.sum(-1, keepdim=True))(scores(q, k).exp2()) @ v, qkv, None)
trap(
    "t_softmax_plus_one",
    lambda q, k, v: (lambda e: e / (1 + e.sum(-1, keepdim=True)))(scores(q, k).exp()) @ v,
    qkv,
    None,
    source="softmax1",
)
trap(
    "t_sum_with_an_epsilon",
    lambda q, k, v: (lambda e: e / (e.sum(-1, keepdim=True) + 1e-3))(scores(q, k).exp()) @ v,
    qkv,
    None,
)
trap(
    "t_late_division_with_an_epsilon",
    lambda q, k, v: (lambda e: (e @ v) / (e.sum(-1, keepdim=True) + 1e-3))(scores(q, k).exp()),
    qkv,
    None,
)
trap(
    "t_sum_of_other_exponentials",
    lambda q, k, v: (lambda s: s.exp() / (2 * s).exp().sum(-1, keepdim=True))(scores(q, k)) @ v,
    qkv,
    None,
)
trap(
    "t_sum_of_detached_exponentials",
    lambda q, k, v: (lambda e: e / e.detach().sum(-1, keepdim=True))(scores(q, k).exp()) @ v,
    qkv,
    None,
    grad_only=True,
)
trap(
    "t_shift_of_other_scores",
    lambda q, k, v: (lambda s: (s - (s * 2).logsumexp(-1, keepdim=True)).exp())(scores(q, k)) @ v,
    qkv,
    None,
)
trap("t_log_softmax_without_exp", lambda q, k, v: scores(q, k).log_softmax(-1) @ v, qkv, None)
trap("t_gumbel_hard", of_weights(lambda w: (w == w.amax(-1, keepdim=True)).to(w.dtype)), qkv, None)
trap("t_double_softmax_with_scale", lambda q, k, v: (scores(q, k).softmax(-1) * 0.5).softmax(-1) @ v, qkv, None)
trap(
    "t_softmax_of_q_and_k", lambda q, k, v: q.softmax(-1) @ (k.softmax(-2).mT @ v), qkv, None, source="linear attention"
)
trap("t_keys_softmaxed_alone", lambda q, k, v: q @ (k.mT.softmax(-1) @ v), qkv, None, source="efficient attention")

# ---- the weights are changed
trap("t_weights_squared", of_weights(lambda w: w * w), qkv, "WEIGHTS_MODIFIED")
trap("t_weights_power", of_weights(lambda w: w**2), qkv, "WEIGHTS_MODIFIED")
trap("t_weights_scaled", of_weights(lambda w: w * 2), qkv, "WEIGHTS_MODIFIED")
trap("t_weights_shifted", of_weights(lambda w: w + 1e-3), qkv, "WEIGHTS_MODIFIED")
trap("t_weights_rounded", of_weights(lambda w: w.round(decimals=2)), qkv, "WEIGHTS_MODIFIED")
trap("t_weights_thresholded", of_weights(lambda w: torch.where(w > 0.05, w, 0.0)), qkv, None)
trap("t_weights_masked_after", lambda q, k, v: scores(q, k).softmax(-1).tril() @ v, qkv, "WEIGHTS_MODIFIED")
trap("t_weights_renormalised", of_weights(lambda w: w / w.sum(-2, keepdim=True)), square, None)
trap(
    "t_weights_minus_identity",
    of_weights(lambda w: w - torch.eye(S, device=w.device, dtype=w.dtype)),
    qkv,
    "WEIGHTS_MODIFIED",
)
trap(
    "t_heads_mixed_after",
    lambda q, k, v: torch.einsum("bhij,hg->bgij", scores(q, k).softmax(-1), q[0, :, 0, :H]) @ v,
    qkv,
    None,
    source="talking heads",
)
trap("t_heads_averaged", lambda q, k, v: scores(q, k).softmax(-1).mean(1, keepdim=True) @ v, qkv, None)
trap(
    "t_weights_of_the_weights",
    lambda q, k, v: (lambda w: w @ (w @ v))(scores(q, k).softmax(-1)),
    qkv,
    "INNER_VALUE_USED",
)
trap("t_nan_replaced", of_weights(torch.nan_to_num), qkv, "WEIGHTS_MODIFIED")
trap(
    "t_sink_column",
    lambda q, k, v: torch.cat([scores(q, k), q[..., :1]], -1).softmax(-1)[..., :S] @ v,
    qkv,
    None,
    source="gpt-oss",
)
trap(
    "t_zero_column",
    lambda q, k, v: F.pad(scores(q, k), (0, 1)).softmax(-1)[..., :-1] @ v,
    qkv,
    None,
    source="quiet attention",
)
