"""rtdl-revisiting-models: transformers for tables."""

import torch
from crossing import adam, exact, held_out, told, trained_by
from torch import nn


def model():
    """An FTTransformer of numbers alone."""
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

    torch.manual_seed(0)
    return Model()


@exact("rtdl_revisiting_models", "Models", "supervised(model, AdamW(model.parameters()), loss)")
def test_transformer(folder):
    """FTTransformer with an optimizer of the script's own."""
    return trained_by(adam, model, held_out())


@told(
    "rtdl_revisiting_models",
    "Models",
    "AdamW(model.parameters())",
    match="same order",
    note="The order of the parameters in a group that it makes is another one in each process.",
)
def test_its_own_optimizer(folder):
    """FTTransformer.make_default_optimizer."""
    return trained_by(lambda model: model.inner.make_default_optimizer(), model)
