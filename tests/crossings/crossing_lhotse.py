"""lhotse: cuts of recordings, and samplers that fill batches by seconds."""

import torch
from crossing import exact, trained_on
from lhotse import CutSet, MonoCut
from lhotse.dataset import DynamicBucketingSampler, SimpleCutSampler


def cuts():

    lengths = [1.0 + (7 * i % 5) / 4 for i in range(44)]
    return CutSet.from_cuts(
        MonoCut(f"{i}", start=0.0, duration=length, channel=0) for i, length in enumerate(lengths)
    ).to_eager()


class Features(torch.utils.data.Dataset):
    """What a data set of lhotse's is: it gets the cuts of one batch."""

    def __getitem__(self, cuts):
        numbers = torch.tensor([[float(cut.id), cut.duration] for cut in cuts])
        return torch.sin(numbers.repeat(1, 4)), numbers[:, 0].long() % 4


@exact(
    "lhotse",
    "Data",
    "DataLoader(data, sampler=SimpleCutSampler(...), batch_size=None)",
    warns="the run changes data.sampler",
    note="The warning is of counters of its diagnostics.",
)
def test_simple(folder):
    """SimpleCutSampler, which fills batches up to six seconds."""
    sampler = SimpleCutSampler(cuts(), max_duration=6.0, shuffle=True, seed=0)
    return trained_on(torch.utils.data.DataLoader(Features(), sampler=sampler, batch_size=None))


@exact(
    "lhotse",
    "Data",
    "DataLoader(data, sampler=DynamicBucketingSampler(...), batch_size=None)",
    warns="random generators cannot be put back|the run changes data.sampler",
    note="The warning is of a generator that the sampler makes from its seed in each epoch.",
)
def test_buckets(folder):
    """DynamicBucketingSampler, whose batches hold cuts of similar length."""
    options = {"num_buckets": 2, "shuffle": True, "seed": 0, "buffer_size": 20}
    sampler = DynamicBucketingSampler(cuts(), max_duration=6.0, **options)
    return trained_on(torch.utils.data.DataLoader(Features(), sampler=sampler, batch_size=None))
