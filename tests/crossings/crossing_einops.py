"""einops: layers that are made of a pattern."""

import torch
from crossing import adam, exact, held_out, trained_by
from torch import nn


@exact("einops", "Models", 'nn.Sequential(Rearrange("b (h w) -> b h w", h=2), ...)')
def test_layers(folder):
    """Rearrange, EinMix and Reduce as layers."""
    from einops.layers.torch import EinMix, Rearrange, Reduce

    def model():
        torch.manual_seed(0)
        mix = EinMix("b h w -> b h c", weight_shape="w c", bias_shape="c", w=4, c=4)
        return nn.Sequential(
            Rearrange("b (h w) -> b h w", h=2), mix, nn.Dropout(0.1), Reduce("b h c -> b c", "mean")
        )

    return trained_by(adam, model, held_out())
