"""A pass that is entered in its middle: the batches that follow, and no sample before them."""

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from camshaft import Engine, Events, SharedOrder


class Samples(Dataset):
    """Numbers; counts for how many it is asked."""

    def __init__(self, length):
        self.length, self.asked = length, 0

    def __len__(self):
        return self.length

    def __getitems__(self, indices):
        self.asked += len(indices)
        return indices


def one_rank(sampler, data):
    return sampler(data, num_replicas=1, rank=0)


SAMPLERS = {
    "in turn": SequentialSampler,
    "at random": RandomSampler,
    "at random, again and again": lambda data: RandomSampler(data, num_samples=3 * len(data)),
    "a list": lambda data: [*range(len(data))],
    "by weights": lambda data: WeightedRandomSampler(torch.ones(len(data)), len(data)),
    "dealt out to one": lambda data: one_rank(DistributedSampler, data),
    "an order dealt out to one": lambda data: one_rank(SharedOrder, RandomSampler(data)),
    "an order dealt out to two": lambda data: SharedOrder(
        RandomSampler(data), num_replicas=2, rank=1
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "at random" else pytest.mark.slow)
        for name in SAMPLERS
    ],
)
def test_what_is_skipped_is_not_loaded_and_the_rest_is_as_without_a_break(name):
    def run(process, samples, state=None, end=152):
        loader = DataLoader(samples, 50, sampler=SAMPLERS[name](samples))
        return Engine(process).run(loader, state=state, max_iterations=end)

    whole, seen, data = [], [], Samples(20_000)
    torch.manual_seed(1)
    run(lambda state, batch: whole.append(batch.tolist()), Samples(20_000))
    drawn = torch.rand(3)
    torch.manual_seed(1)
    state = run(lambda state, batch: None, Samples(20_000), end=150)
    run(lambda state, batch: seen.append(batch.tolist()), data, state)
    assert data.asked == 2 * 50
    assert seen == whole[150:]
    assert torch.equal(torch.rand(3), drawn)


class Stepwise:
    """Gives one part after the other, and notes which ones it has begun."""

    def __init__(self):
        self.begun = []

    def __len__(self):
        return 951

    def __iter__(self):
        for part in ([*range(300)], range(300, 600), [600], (number for number in range(601, 951))):
            self.begun.append(type(part))
            yield from part


@pytest.mark.parametrize("left_at", [1, 120, 300, 301, 600, 601, 650, 951])
def test_a_sampler_of_several_parts_begins_those_that_it_would_have_begun(left_at):
    def make():
        return DataLoader(Samples(951), 1, sampler=Stepwise())

    def run(loader, state=None, **limits):
        def process(state, batch):
            seen.append((int(batch), len(loader.sampler.begun)))

        engine = Engine(process)
        engine.on(Events.ITERATION_COMPLETED(at=left_at))(lambda state: state.stop("pause"))
        return engine.run(loader, state=state, **limits)

    seen = []
    run(make(), state=run(make(), max_epochs=1))
    seen, resumed = [], seen
    loader = make()
    Engine(lambda state, batch: seen.append((int(batch), len(loader.sampler.begun)))).run(
        loader, max_epochs=1
    )
    assert resumed == seen
