"""The data of random runs: pairs of an input, which tells its sample, and a target."""

import math
import random
from itertools import islice

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info


def pair(index, noise=0.0):
    """One sample: a known input, and its target."""
    inputs = torch.tensor([float(index), math.sin(index) + noise])
    return inputs, inputs.sum(0, keepdim=True) / 40


def noise():
    """Random numbers of three libraries."""
    return torch.rand(()).item() + random.random() + np.random.random()


def batches(count, size=2):
    """A list of batches."""
    first = range(0, count * size, size)
    return [
        tuple(map(torch.stack, zip(*map(pair, range(n, n + size)), strict=True))) for n in first
    ]


def rows(shard):
    """The samples of a shard, of different numbers."""
    return (pair(10 * shard + index) for index in range(3 + shard))


def seeded(seed):
    """A generator of torch's."""
    return torch.Generator().manual_seed(seed)


class Pairs(Dataset):
    """Samples; `noisy` ones draw random numbers when they are read."""

    def __init__(self, count, noisy=False):
        self.count, self.noisy = count, noisy

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return pair(index, noise() if self.noisy else 0.0)


class OwnNoise(Pairs):
    """Samples that draw from a generator of their own: torch's, NumPy's or Python's."""

    def __init__(self, count, kind):
        super().__init__(count)
        makes = {"torch": seeded, "numpy": np.random.default_rng, "python": random.Random}
        self.kind, self.own = kind, makes[kind](7)

    def __getitem__(self, index):
        if self.kind == "torch":
            return pair(index, torch.rand((), generator=self.own).item())
        return pair(index, self.own.random())


class Counting(Pairs):
    """Samples that depend on how many were read before."""

    def __init__(self, count):
        super().__init__(count)
        self.read = 0

    def __getitem__(self, index):
        self.read += 1
        return pair(index, self.read / 100)


class Texts(Pairs):
    """Samples of different lengths, for `LengthBatches` and `Padded`."""

    def __init__(self, count):
        super().__init__(count)
        self.lengths = [2 + index * 7 % 5 for index in range(count)]

    def __getitem__(self, index):
        inputs, target = super().__getitem__(index)
        return inputs.repeat(3)[: self.lengths[index]], target


class Stream(IterableDataset):
    """A stream; its workers share the samples."""

    def __init__(self, count, noisy=False):
        self.count, self.noisy = count, noisy

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, self.count, step):
            yield pair(index, noise() if self.noisy else 0.0)


class Buffered(Stream):
    """A stream with a shuffle buffer, which needs a generator of its own."""

    def __init__(self, count):
        super().__init__(count)
        self.generator = random.Random(5)

    def __iter__(self):
        held = []
        for sample in super().__iter__():
            held.append(sample)
            if len(held) > 4:
                yield held.pop(self.generator.randrange(len(held)))
        yield from held


class Shuffled(Sampler):
    """A sampler that draws as the epoch goes on, from a generator of its own."""

    def __init__(self, count, seed=3):
        self.count, self.generator = count, seeded(seed)

    def __len__(self):
        return self.count

    def __iter__(self):
        for first in range(0, self.count, 5):
            size = min(5, self.count - first)
            order = torch.randperm(size, generator=self.generator)
            yield from (first + order).tolist()


class ByEpoch(Sampler):
    """A sampler that is told which epoch begins."""

    def __init__(self, count):
        self.count, self.epoch = count, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(torch.randperm(self.count, generator=seeded(self.epoch)).tolist())


class Growing(ByEpoch):
    """A sampler with more indices in each epoch."""

    def __len__(self):
        return min(self.count, 4 + 2 * self.epoch)

    def __iter__(self):
        return islice(super().__iter__(), len(self))


class RandomBatches(Sampler):
    """A batch sampler: batches of random sizes, drawn by Python's generator as a pass begins."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        order, sizes = list(range(self.count)), []
        random.shuffle(order)
        while sum(sizes) < self.count:
            sizes.append(random.randint(1, 3))
        ends = np.cumsum(sizes).tolist()
        return (order[end - size : end] for end, size in zip(ends, sizes, strict=True))


class Fresh:
    """Any other iterable: another order each time, by torch's generator."""

    def __init__(self, count):
        self.batches = batches(count)

    def __iter__(self):
        order = torch.randperm(len(self.batches)).tolist()
        return (self.batches[index] for index in order)


class Cursor:
    """Data with a state of its own: its order and its place in it, until it is used up."""

    def __init__(self, count):
        self.batches, self.order, self.at = batches(count), None, 0

    def __iter__(self):
        if self.order is None:
            self.order, self.at = torch.randperm(len(self.batches)).tolist(), 0
        return self

    def __next__(self):
        if self.order is None or self.at == len(self.order):
            self.order, self.at = None, 0
            raise StopIteration
        self.at += 1
        return self.batches[self.order[self.at - 1]]

    def state_dict(self):
        return {"order": self.order, "at": self.at}

    def load_state_dict(self, saved):
        self.order, self.at = saved["order"], saved["at"]


class Rewinding:
    """A loader of old: beginning it rewinds it, and gives itself."""

    def __init__(self, count):
        self.batches, self.at = batches(count), 0

    def __iter__(self):
        self.at = 0
        return self

    def __next__(self):
        if self.at == len(self.batches):
            raise StopIteration
        self.at += 1
        return self.batches[self.at - 1]
