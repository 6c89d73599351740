"""rtdl-revisiting-models: transformers for tables."""

import torch
from crossing import exact, held_out, trained_by
from torch import nn


@exact("rtdl_revisiting_models", "Models", "supervised(model, optimizer, loss)")
def test_transformer(folder):
    """FTTransformer with the optimizer that it makes itself."""
    from rtdl_revisiting_models import FTTransformer

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = FTTransformer(
                n_cont_features=8, cat_cardinalities=[], d_out=4, n_blocks=1, d_block=8,
                attention_n_heads=2, attention_dropout=0.1, ffn_d_hidden_multiplier=2,
                ffn_dropout=0.1, residual_dropout=0.1,
            )  # fmt: skip

        def forward(self, features):
            return self.inner(features, None)

    def model():
        torch.manual_seed(0)
        return Model()

    return trained_by(lambda model: model.inner.make_default_optimizer(), model, held_out())
