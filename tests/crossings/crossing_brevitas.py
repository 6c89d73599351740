"""brevitas: quantization-aware training with learned and counted scales."""

import torch
from crossing import adam, exact, held_out, trained_by
from torch import nn


@exact(
    "brevitas",
    "Models",
    'objects={"model": model, "scales": Scales(model), ...}, which saves count, buffer and value',
    note="A state_dict of brevitas ends the collection of statistics; afterwards it is whole.",
)
def test_collected_scales(folder):
    """QuantReLU, whose scale is collected for some steps and then learned, and QuantLinear."""
    import brevitas.nn as qnn
    from brevitas.quant import Uint8ActPerTensorFloat

    class Collected(Uint8ActPerTensorFloat):
        collect_stats_steps = 7

    class Scales:
        def __init__(self, model):
            self.scales = [each for each in model.modules() if hasattr(each, "collect_stats_steps")]

        def state_dict(self):
            return {
                f"{n}": {"count": each.counter, "buffer": each.buffer, "value": each.value.detach()}
                for n, each in enumerate(self.scales)
            }

        def load_state_dict(self, state):
            for n, each in enumerate(self.scales):
                each.counter = state[f"{n}"]["count"]
                each.buffer.copy_(state[f"{n}"]["buffer"])
                each.value.data.copy_(state[f"{n}"]["value"])

    def model():
        torch.manual_seed(0)
        return nn.Sequential(
            qnn.QuantLinear(8, 64, bias=True, weight_bit_width=4),
            qnn.QuantReLU(act_quant=Collected),
            nn.Dropout(0.1),
            qnn.QuantLinear(64, 4, bias=True, weight_bit_width=4),
        )

    trial = trained_by(adam, model, held_out())
    trial.engine.objects["scales"] = Scales(trial.engine.objects["model"])
    return trial
