"""torchrl: replay buffers as data."""

import torch
from crossing import digits, exact, network, trained_with
from tensordict import TensorDict
from torch import nn
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers import SamplerWithoutReplacement


def filled(buffer):

    features, labels = digits().tensors
    buffer.extend(TensorDict({"features": features, "label": labels}, [44]))
    return buffer


def trained_on(buffer, data, **options):
    torch.manual_seed(0)
    model = network()

    def loss_of(batch):
        return nn.functional.cross_entropy(model(batch["features"]), batch["label"])

    return trained_with(model, loss_of, data, **options)


@exact("torchrl", "Data", "engine.run(buffer, epoch_length=11)")
def test_buffer(folder):
    """A TensorDictReplayBuffer that draws at random, as data."""
    buffer = filled(TensorDictReplayBuffer(storage=LazyTensorStorage(100), batch_size=4))
    return trained_on(buffer, buffer, epoch_length=11)


@exact(
    "torchrl",
    "Data",
    "engine.run(buffer)",
    warns="11 batches instead of 44",
    note="A warning at the resume takes len() of a buffer, its samples, for its batches.",
)
def test_without_replacement(folder):
    """A TensorDictReplayBuffer that draws each sample once, as data."""
    parts = {"storage": LazyTensorStorage(100), "sampler": SamplerWithoutReplacement()}
    buffer = filled(TensorDictReplayBuffer(**parts, batch_size=4))
    return trained_on(buffer, buffer)
