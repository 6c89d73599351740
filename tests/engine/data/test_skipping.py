"""A pass that is entered in its middle: what it costs does not grow with what is skipped."""

import sys

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


def resumed(sampler, iterations, size, length):
    """The calls and the batches of a run that is resumed after so many iterations.

    The iterations before it come from a loader over as many samples that costs no time.
    """
    torch.manual_seed(1)
    engine = Engine(lambda state, batch: None)
    state = engine.run(
        DataLoader(Samples(length), size, sampler=sampler(Samples(length))),
        max_iterations=iterations,
    )
    data, seen, kinds = Samples(length), [], []
    loader = DataLoader(data, size, sampler=sampler(data))
    engine = Engine(lambda state, batch: seen.append(batch.tolist()))
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: kinds.append(event))
    try:
        engine.run(loader, state=state, max_iterations=iterations + 2)
    finally:
        sys.setprofile(before)
    assert data.asked == 2 * size
    return kinds.count("call") + kinds.count("c_call"), seen


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "at random" else pytest.mark.slow)
        for name in SAMPLERS
    ],
)
def test_what_is_skipped_costs_no_call_and_no_sample(name):
    sampler = SAMPLERS[name]
    few, _ = resumed(sampler, iterations=5, size=50, length=20_000)
    many, seen = resumed(sampler, iterations=150, size=50, length=20_000)
    assert abs(many - few) <= 5
    torch.manual_seed(1)
    whole = []
    Engine(lambda state, batch: whole.append(batch.tolist())).run(
        DataLoader(Samples(20_000), 50, sampler=sampler(Samples(20_000))), max_iterations=152
    )
    assert seen == whole[150:]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["in turn", "at random"])
def test_a_run_is_resumed_at_iteration_one_million_with_as_many_calls_as_at_one_thousand(name):
    length = 1_000_010
    few, _ = resumed(SAMPLERS[name], iterations=1000, size=1, length=length)
    many, seen = resumed(SAMPLERS[name], iterations=1_000_000, size=1, length=length)
    assert abs(many - few) <= 5
    assert len(seen) == 2


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
