"""Passes over a part of the data: the share of each rank, and max_batches."""

import logging

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    TensorDataset,
)

from camshaft import Engine, Events, supervised
from camshaft.engine.data.dataloader import order_of
from camshaft.handlers import Checkpoint, Validate


def share_of(rank, ranks, training=False, samples=499, **arguments):
    """What one of several ranks is handed, batch by batch."""
    sampling = {"shuffle": arguments.pop("shuffle", False)}
    sampling["drop_last"] = arguments.pop("drop_samples", False)
    data = range(samples)
    sampler = DistributedSampler(data, num_replicas=ranks, rank=rank, **sampling)
    loader, seen = DataLoader(data, sampler=sampler, **arguments), []
    engine = Engine(lambda state, batch: seen.append(torch.as_tensor(batch).tolist()))
    state = engine.run(loader, max_epochs=1) if training else engine.evaluate(loader)
    assert state.epoch_length == len(seen)
    return seen


def flat(batches):
    return [each for batch in batches for each in (batch if isinstance(batch, list) else [batch])]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1, 83, 500])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 499])
def test_the_shares_of_all_ranks_are_the_samples_each_once(ranks, batch_size, shuffle):
    some = range(ranks) if ranks < 9 else [0, 250, 498]
    shares = [flat(share_of(r, ranks, shuffle=shuffle, batch_size=batch_size)) for r in some]
    if ranks < 9:
        assert sorted(flat(shares)) == list(range(499))
    if not shuffle:
        assert shares == [list(range(rank, 499, ranks)) for rank in some]


def test_a_last_batch_of_repeats_alone_is_not_there():
    shares = [share_of(rank, 2, batch_size=83) for rank in (0, 1)]
    assert [[len(batch) for batch in share] for share in shares] == [[83, 83, 83, 1], [83, 83, 83]]


def test_in_training_a_rank_without_a_sample_takes_one_that_counts_for_nothing():
    for rank in range(4):
        sampler = DistributedSampler(range(9), num_replicas=4, rank=rank, shuffle=False)
        shares = []
        engine = Engine(lambda state, batch, s=shares: s.append((batch.tolist(), state.share)))
        state = engine.run(DataLoader(range(9), 2, sampler=sampler), max_epochs=1)
        assert shares == [([rank, rank + 4], 1), ([8], 0 if rank else 4)]
        assert (state.epoch_length, state.share) == (2, 1)


@pytest.mark.filterwarnings("ignore:this evaluation leaves out 49 of its 249 samples")
def test_who_drops_the_rest_has_it_dropped():
    shares = [
        flat(share_of(r, 2, drop_samples=True, batch_size=50, drop_last=True)) for r in (0, 1)
    ]
    assert [len(share) for share in shares] == [200, 200]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_persistent_workers_serve_training_and_evaluation_over_one_loader_in_turn():
    data = range(5)
    sampler = DistributedSampler(data, num_replicas=2, rank=1, shuffle=False)
    loader = DataLoader(data, 2, sampler=sampler, num_workers=1, persistent_workers=True)
    seen = []
    engine = Engine(lambda state, batch: seen.append((state.training, batch.tolist())))
    for _ in range(2):
        engine.run(loader, max_epochs=1)
        engine.evaluate(loader)
    training, evaluation = [1, 3, 4], [1, 3]
    assert flat([batch for is_training, batch in seen if is_training]) == training * 2
    assert flat([batch for is_training, batch in seen if not is_training]) == evaluation * 2


class Reversed(DistributedSampler):
    def __iter__(self):
        return reversed(list(super().__iter__()))


def test_samplers_that_go_their_own_way_are_left_alone():
    own = Reversed(range(5), num_replicas=2, rank=1)
    for arguments in [
        *({"sampler": own}, {"sampler": RandomSampler(range(5))}),
        {"batch_sampler": BatchSampler(own, 2, False)},
    ]:
        loader = DataLoader(range(5), **arguments)
        torch.manual_seed(0)
        batches = [*loader._index_sampler]
        torch.manual_seed(0)
        assert [*order_of(loader)] == batches


def test_fewer_samples_than_ranks_is_an_error_on_every_rank():
    for rank in (0, 1, 2):
        with pytest.raises(ValueError, match="an evaluation of 2 samples on 3 ranks"):
            share_of(rank, 3, samples=2)


def recording():
    batches = []
    return Engine(lambda state, batch: batches.append((state.training, batch))), batches


def of_training(batches):
    return [batch for training, batch in batches if training]


def test_every_pass_of_training_and_of_evaluation_ends_after_so_many_batches():
    engine, batches = recording()
    engine.add(Validate(range(100, 110)), Validate(range(200, 202), name="short"))
    state = engine.run(range(10), max_epochs=2, max_batches=3)
    assert of_training(batches) == [0, 1, 2, 0, 1, 2]
    assert [batch for training, batch in batches if not training] == [100, 101, 102, 200, 201] * 2
    assert (state.iteration, state.epoch) == (6, 2)
    batches.clear()
    engine.on(Events.COMPLETED)(lambda state: engine.evaluate(range(5)))
    engine.run(range(1), max_epochs=1, max_batches=3)
    assert len(batches) == 1 + 3 + 2 + 3
    batches.clear()
    engine.evaluate(range(5))
    assert len(batches) == 5


def test_what_is_shorter_by_itself_stays_so():
    engine, batches = recording()
    engine.add(Validate(range(10), epoch_length=1))
    engine.run(range(2), max_epochs=1, max_batches=3)
    assert batches == [(True, 0), (True, 1), (False, 0)]


@pytest.mark.parametrize(("length", "expected"), [(2, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4, 5])])
def test_of_virtual_epochs_the_shorter_length_counts(length, expected):
    engine, batches = recording()
    engine.run(range(10), max_epochs=2, epoch_length=length, max_batches=3)
    assert of_training(batches) == expected


def test_whoever_asks_for_the_length_of_an_epoch_knows_of_it_beforehand():
    engine, _ = recording()
    lengths = []
    engine.on(Events.STARTED)(lambda state: lengths.append(state.epoch_length))
    engine.run(range(10), max_epochs=1, max_batches=3)
    engine.run(range(10), max_epochs=1, epoch_length=7, max_batches=3)
    engine.run(iter(range(2)), max_epochs=1, max_batches=3)
    assert lengths == [3, 3, None]


def test_the_length_of_an_evaluation_does_not_shorten_the_runs_inside_it():
    inner, batches = recording()
    engine = Engine(lambda state, batch: None)
    engine.evaluation.on(Events.STARTED)(lambda state: inner.run(range(5), max_epochs=1))
    engine.evaluate(range(9), epoch_length=2)
    assert of_training(batches) == [0, 1, 2, 3, 4]


def test_it_is_said_once_a_run(caplog):
    engine, _ = recording()
    engine.add(Validate(range(10)))
    engine.run(range(10), max_epochs=2, max_batches=3)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.startswith("max_batches=3: each pass over data, in training")


@pytest.mark.parametrize(
    ("given", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), (1.5, TypeError)]
)
def test_what_is_no_number_of_batches_is_refused(given, error):
    with pytest.raises(error, match=f"max_batches={given}: needs a "):
        recording()[0].run(range(10), max_epochs=1, max_batches=given)


def run(directory, stop_at=None, override=(), max_batches=3):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(Checkpoint(directory, resume=True, override=override))
    if stop_at:
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.interrupt("enough"))
    loader = DataLoader(data, 5, shuffle=True)
    state = engine.run(loader, max_epochs=3, max_batches=max_batches)
    return state.iteration, model.weight.detach().clone()


@pytest.mark.parametrize("stop_at", [2, 3, 5])
def test_a_limited_run_resumes_exactly(stop_at, tmp_path):
    run(tmp_path / "a", stop_at)
    iteration, weight = run(tmp_path / "a")
    assert iteration == 9
    assert torch.equal(weight, run(tmp_path / "b")[1])


def test_a_trial_run_is_not_continued_as_a_real_run_unless_overridden(tmp_path):
    run(tmp_path, stop_at=4)
    with pytest.raises(ValueError, match="max_batches: 3 in the checkpoint -> None in the script"):
        run(tmp_path, max_batches=None)
    iteration, _ = run(tmp_path, override=["max_batches"], max_batches=None)
    assert iteration == 3 + 8 + 8


def test_a_real_run_is_not_continued_as_a_trial_run(tmp_path):
    run(tmp_path, stop_at=4, max_batches=None)
    with pytest.raises(ValueError, match="None in the checkpoint -> 3 in the script"):
        run(tmp_path)
