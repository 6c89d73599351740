"""Loaders made of data sets, on one rank and on two."""

import json
import os

import pytest
import torch
from torch.utils.data import (
    DistributedSampler,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

from camshaft import LengthBatches, SeededSamples, SharedOrder, loader


class Squares:
    """Samples that are computed when they are asked for."""

    def __len__(self):
        return 11

    def __getitem__(self, index):
        return index**2


def test_training_is_shuffled_and_evaluation_in_order_and_nothing_is_left_out():
    training, evaluation = (loader(range(11), 4, training=each) for each in (True, False))
    assert [batch.tolist() for batch in evaluation] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert sorted(torch.cat(list(training)).tolist()) == list(range(11))


def test_the_order_is_that_of_the_seed_and_the_epoch_whatever_torchs_generator():
    def order(seed=0, epoch=0):
        made = loader(range(11), 4, training=True, seed=seed)
        made.sampler.set_epoch(epoch)
        return [batch.tolist() for batch in made]

    torch.manual_seed(0)
    first = order()
    torch.manual_seed(1)
    assert order() == first
    assert order(seed=1) != first != order(epoch=1)


def test_a_seed_that_is_no_number_is_refused():
    def made(seed):
        yield lambda: loader(range(4), 2, training=True, seed=seed)
        yield lambda: SeededSamples([1, 2], seed)
        yield lambda: SharedOrder(SubsetRandomSampler([1, 3]), seed=seed)
        yield lambda: LengthBatches([1, 2], 2, seed=seed)

    assert len([make() for make in made(-7)]) == 4
    for seed in (None, 0.5, "a"):
        for make in made(seed):
            with pytest.raises(TypeError, match=f"^seed={seed!r}: needs a whole number"):
                make()


def test_a_sampler_of_the_whole_order_is_dealt_out():
    chosen = SubsetRandomSampler([1, 3, 5, 7])
    made = loader(range(11), 2, training=True, sampler=chosen)
    assert sorted(torch.cat(list(made)).tolist()) == [1, 3, 5, 7]
    assert isinstance(made.sampler, SharedOrder)
    dealing = DistributedSampler(range(11), 1, 0)
    with pytest.raises(ValueError, match="deals samples out to the ranks, and so does Distributed"):
        loader(range(11), 2, training=True, sampler=dealing)


def test_workers_load_samples_that_are_not_in_memory_yet():
    in_memory = TensorDataset(torch.arange(4.0))
    for data in (in_memory, Subset(torch.ones(2), [0, 1]), [1.0, 2.0], SeededSamples([1.0, 2.0])):
        assert loader(data, 2, training=True).num_workers == 0
    assert 1 <= loader(Squares(), 2, training=True).num_workers <= 8
    assert loader(Squares(), 2, training=True).pin_memory == torch.cuda.is_available()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux shares cores out so")
def test_there_are_no_more_workers_than_this_process_has_cores():
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert loader(Squares(), 2, training=True).num_workers == 1
    finally:
        os.sched_setaffinity(0, cores)


def test_options_of_torchs_replace_what_is_set_here():
    made = loader(Squares(), 4, training=True, num_workers=0, drop_last=True, pin_memory=False)
    assert (made.num_workers, made.drop_last, made.pin_memory, len(made)) == (0, True, False, 2)
    made = loader([torch.ones(1), torch.ones(2)], 2, training=False, collate_fn=len)
    assert list(made) == [2]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize(
    ("data", "size", "options", "error", "says"),
    [
        (Stream(), 2, {}, TypeError, "Stream is a stream without indices: give a ShardedStream"),
        (range(9), 0, {}, ValueError, "batch_size=0: needs a number of samples, from 1"),
        (range(9), 2, {"shuffle": False}, ValueError, "loader.. shuffles by training=, and"),
    ],
)
def test_what_it_cannot_make_is_refused(data, size, options, error, says):
    with pytest.raises(error, match=says):
        loader(data, size, training=True, **options)


ON_RANKS = """
import json, sys
from pathlib import Path
import pytest, torch
from camshaft import Engine, Events, LengthBatches, Padded, loader, ranks
from camshaft.handlers import Checkpoint
from torch.utils.data import DataLoader

directory = Path(sys.argv[1])

def run(name, made, stop_at=None):
    seen = []
    engine = Engine(lambda state, batch: seen.append(batch.tolist()))
    engine.add(Checkpoint(directory / name, resume=True))
    if stop_at:
        engine.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("enough"))
    engine.run(made, max_epochs=2)
    return seen

lengths = [1 + number % 7 for number in range(23)]
texts = [torch.full((length,), number) for number, length in enumerate(lengths)]

def like():
    return DataLoader(texts, batch_sampler=LengthBatches(lengths, 6), collate_fn=Padded(-1))

with ranks.process_group():
    with pytest.raises(ValueError, match="that 2 ranks can share evenly"):
        loader(range(9), 3, training=True)
    found = {}
    for name, make in {
        "shuffled": lambda: loader(range(23), 6, training=True, seed=3),
        "of like length": like,
    }.items():
        whole = run(name, make())
        torch.rand(5)
        for stop_at in (1, 4, 6):
            first = run(f"{name}-{stop_at}", make(), stop_at)
            assert first + run(f"{name}-{stop_at}", make()) == whole, (name, stop_at)
        found[name] = whole
    seen = []
    engine = Engine(lambda state, batch: seen.append(batch.tolist()))
    engine.evaluate(loader(range(23), 6, training=False))
    found["evaluation"] = seen
    (directory / f"{ranks.rank()}.json").write_text(json.dumps(found))
"""


def flat(batches):
    return [each for batch in batches for each in batch]


def test_ranks_share_each_batch_and_resume_in_mid_epoch_as_the_same_run(processes, tmp_path):
    processes.run_ranks(2, ON_RANKS, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    for found, last in ((first, 3), (second, 2)):  # none is repeated, though 23 is odd
        assert [len(batch) for batch in found["shuffled"]] == [3, 3, 3, last] * 2
    epochs = [flat(found["shuffled"][at : at + 4]) for at in (0, 4) for found in (first, second)]
    assert set(epochs[0] + epochs[1]) == set(epochs[2] + epochs[3]) == set(range(23))
    assert epochs[0] != epochs[2]
    assert sorted(flat(first["evaluation"]) + flat(second["evaluation"])) == list(range(23))
    # Of like length: each sample once an epoch, and the ranks have like lengths at each step.
    own, other = (
        [[each[0] for each in batch] for batch in found["of like length"]]
        for found in (first, second)
    )
    for at in (0, 4):
        assert sorted(flat(own[at : at + 4]) + flat(other[at : at + 4])) == list(range(23))
    for a, b in zip(own, other, strict=True):
        lengths = [1 + number % 7 for number in a + b]
        assert max(lengths) - min(lengths) <= 2
        assert 0 <= len(a) - len(b) <= 1


def test_what_has_no_indices_is_refused_at_once():
    with pytest.raises(TypeError, match="a generator has no indices or no length"):
        loader((number for number in range(3)), 2, training=False)
