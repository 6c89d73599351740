"""pytorch-forecasting: models that are LightningModules, on the bridge."""

import numpy as np
import pandas as pd
from crossing import Trial, exact, told
from lightning.pytorch import LightningModule, seed_everything


def series():
    from pytorch_forecasting import TimeSeriesDataSet

    rows = [(name, t, np.sin(t / 3) + len(name)) for name in ("a", "bb") for t in range(30)]
    frame = pd.DataFrame(rows, columns=["group", "time", "value"])
    lengths = {"max_encoder_length": 6, "max_prediction_length": 2}
    reals = {"time_varying_unknown_reals": ["value"], "time_varying_known_reals": ["time"]}
    return TimeSeriesDataSet(frame, "time", "value", ["group"], **lengths, **reals)


def trained(cls, **options):
    from camshaft.handlers.bridges.lightning import from_lightning

    seed_everything(0)
    data = series()
    module = cls.from_dataset(data, optimizer="adam", learning_rate=0.01, **options)
    return Trial(from_lightning(module), data.to_dataloader(train=True, batch_size=4))


@told(
    "pytorch-forecasting",
    "Models",
    "class Forecaster(DeepAR): on_save_checkpoint = LightningModule.on_save_checkpoint",
    match="'hyper_parameters' is not there",
    note="Its hooks put the data set's encoders and losses into Lightning's own checkpoints.",
)
def test_as_it_is(folder):
    """A DeepAR model through the Lightning bridge, as it is."""
    from pytorch_forecasting import DeepAR

    return trained(DeepAR)


@exact(
    "pytorch-forecasting",
    "Models",
    "class Forecaster(DeepAR): on_save_checkpoint = LightningModule.on_save_checkpoint",
    note="And `on_load_checkpoint` likewise: what they keep is made by the script again.",
)
def test_without_its_hooks_of_checkpoints(folder):
    """A TemporalFusionTransformer through the Lightning bridge, without those two hooks."""
    from pytorch_forecasting import TemporalFusionTransformer

    class Forecaster(TemporalFusionTransformer):
        on_save_checkpoint = LightningModule.on_save_checkpoint
        on_load_checkpoint = LightningModule.on_load_checkpoint

    return trained(Forecaster, hidden_size=8, attention_head_size=2)
