"""grain: pipelines of JAX's, which give the same for one seed."""

import grain
import numpy as np
import torch
from crossing import digits, exact, trained_on


def batches():

    def with_noise(sample, generator):
        features, label = sample
        return features.numpy() + generator.normal(0, 0.1, 8).astype("float32"), label.item()

    data = grain.MapDataset.source(digits()).seed(0).shuffle()
    return data.random_map(with_noise).to_iter_dataset().batch(4)


def tensors(batch):
    return tuple(torch.as_tensor(np.asarray(each)) for each in batch)


@exact("grain", "Data", "engine.run(pipeline.to_iter_dataset().batch(4))")
def test_pipeline(folder):
    """A MapDataset that shuffles and draws random numbers, and its batches."""
    return trained_on(batches().map(tensors))


@exact("grain", "Data", "engine.run(DataLoader(data_source=..., sampler=IndexSampler(...), ...))")
def test_loader(folder):
    """grain.DataLoader over an IndexSampler of one epoch."""

    class ToPair(grain.transforms.Map):
        def map(self, sample):
            return sample[0].numpy(), sample[1].item()

    sampler = grain.samplers.IndexSampler(44, shuffle=True, seed=0, num_epochs=1)
    steps = [ToPair(), grain.transforms.Batch(4)]
    loader = grain.DataLoader(data_source=digits(), sampler=sampler, operations=steps)
    return trained_on(Tensors(loader))


class Tensors:
    """Batches of arrays as tensors."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return map(tensors, self.loader)
