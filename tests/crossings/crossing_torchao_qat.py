"""torchao: quantization-aware training."""

import torch
from crossing import adam, exact, held_out, trained_by
from torch import nn


@exact("torchao", "Models", 'quantize_(model, QATConfig(base, step="prepare"))  # before the run')
def test_qat(folder):
    """QATConfig with int8 activations and int4 weights, whose layers are FakeQuantizedLinear."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.qat import QATConfig

    def model():
        torch.manual_seed(0)
        made = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
        base = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=PerGroup(8)
        )
        quantize_(made, QATConfig(base, step="prepare"))
        return made

    return trained_by(adam, model, held_out())
