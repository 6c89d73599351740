"""polars: data frames, and the sampling of their rows."""

import numpy as np
import polars
import torch
from crossing import exact, told, trained_on


def frame():

    values = np.random.default_rng(5).normal(size=(44, 8)).astype("float32")
    made = polars.DataFrame(values, schema=[f"feature {i}" for i in range(8)])
    return made.with_columns(label=polars.Series(values[:, :4].argmax(1)))


@exact("polars", "Data", "DataLoader(frame.to_torch('dataset', label='label'), shuffle=True)")
def test_to_torch(folder):
    """The data set that to_torch makes of a DataFrame."""

    def pairs(rows):
        features, labels = torch.utils.data.default_collate(rows)
        return features, labels.flatten()

    data = frame().to_torch("dataset", label="label")
    torch.manual_seed(0)
    return trained_on(torch.utils.data.DataLoader(data, 4, shuffle=True, collate_fn=pairs))


class Sampled:
    """Batches of a frame that is shuffled for each pass."""

    def __init__(self, seed):
        self.frame, self.seed, self.epoch = frame(), seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        seed = self.seed if self.seed is None else self.seed + self.epoch
        shuffled = self.frame.sample(fraction=1.0, shuffle=True, seed=seed)
        for rows in shuffled.iter_slices(4):
            yield rows.drop("label").to_torch(), rows["label"].to_torch()


@told(
    "polars",
    "Data",
    "frame.sample(fraction=1.0, shuffle=True, seed=epoch), with set_epoch",
    match="gives something else",
)
def test_sample(folder):
    """DataFrame.sample without a seed: the generator of polars is in no checkpoint."""
    return trained_on(Sampled(None))


@exact("polars", "Data", "frame.sample(fraction=1.0, shuffle=True, seed=epoch), with set_epoch")
def test_sample_by_epoch(folder):
    """DataFrame.sample with the number of the epoch as a seed."""
    return trained_on(Sampled(7))
