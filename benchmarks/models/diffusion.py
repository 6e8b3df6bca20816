"""Models of diffusers: what denoises pictures, and what encodes them."""

from __future__ import annotations

import diffusers
import torch
from diffusers.models import attention_processor
from torch import nn

from .entry import Entry, Inputs, features, picture


def _unet(implementation: str) -> nn.Module:
    """As in Stable Diffusion 1.5: self- and cross-attention in each block, the text as encoder_hidden_states."""
    torch.manual_seed(0)
    model = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(32, 32), layers_per_block=1,
        cross_attention_dim=16, attention_head_dim=4, norm_num_groups=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    return _with_processor(model, implementation)


def _with_processor(model: nn.Module, implementation: str) -> nn.Module:
    chosen = attention_processor.AttnProcessor if implementation == "eager" else attention_processor.AttnProcessor2_0
    for part in model.modules():
        if isinstance(part, attention_processor.Attention):
            part.set_processor(chosen())
    return model


def _vae(implementation: str) -> nn.Module:
    """The attention in the middle of the encoder and of the decoder: one head, as long as the picture is large."""
    torch.manual_seed(0)
    model = diffusers.AutoencoderKL(
        block_out_channels=(16,), norm_num_groups=4, down_block_types=("DownEncoderBlock2D",),
        up_block_types=("UpDecoderBlock2D",),
    )  # fmt: skip
    return _with_processor(model, implementation)


def _dit(implementation: str) -> nn.Module:
    torch.manual_seed(0)
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, norm_num_groups=8,
        num_embeds_ada_norm=10,
    )  # fmt: skip
    return _with_processor(model, implementation)


def _flux(_: str) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = diffusers.FluxTransformer2DModel(
        in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=8, num_attention_heads=4,
        joint_attention_dim=24, pooled_projection_dim=24, axes_dims_rope=(2, 2, 4),
    )  # fmt: skip
    return model


def _noisy(_: int) -> Inputs:
    return {
        "sample": picture(8, 4),
        "timestep": torch.tensor([3, 4]),
        "encoder_hidden_states": features(7, 16),
    }


def _labelled(_: int) -> Inputs:
    return {
        "hidden_states": picture(8, 4),
        "timestep": torch.tensor([3, 4]),
        "class_labels": torch.tensor([1, 2]),
    }


def _flux_inputs(length: int) -> Inputs:
    return {
        "hidden_states": features(length, 4),
        "encoder_hidden_states": features(5, 24),
        "pooled_projections": features(1, 24)[:, 0],
        "timestep": torch.tensor([0.5, 0.6]),
        "img_ids": torch.zeros(length, 3),
        "txt_ids": torch.zeros(5, 3),
    }


ENTRIES = (
    Entry("UNet of Stable Diffusion 1.5", "diffusers", _unet, _noisy, 8, dynamic=False),
    Entry("VAE", "diffusers", _vae, lambda _: {"sample": picture(8)}, 2, dynamic=False),
    Entry("DiT", "diffusers", _dit, _labelled, 2, dynamic=False),
    Entry("Flux", "diffusers", _flux, _flux_inputs, 2, implementations=("sdpa",)),
)
