"""brevitas: quantization-aware training with learned and counted scales."""

import torch
from crossing import adam, exact, held_out, trained_by
from torch import nn


@exact("brevitas", "Models", "supervised(model, optimizer, loss)")
def test_collected_scales(folder):
    """QuantReLU, whose scale is collected for some steps and then learned, and QuantLinear."""
    import brevitas.nn as qnn
    from brevitas.quant import Uint8ActPerTensorFloat

    class Collected(Uint8ActPerTensorFloat):
        collect_stats_steps = 7

    def model():
        torch.manual_seed(0)
        return nn.Sequential(
            qnn.QuantLinear(8, 64, bias=True, weight_bit_width=4),
            qnn.QuantReLU(act_quant=Collected),
            nn.Dropout(0.1),
            qnn.QuantLinear(64, 4, bias=True, weight_bit_width=4),
        )

    return trained_by(adam, model, held_out())
