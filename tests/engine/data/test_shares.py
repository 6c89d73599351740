"""In an evaluation each sample counts once, on however many ranks."""

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

from camshaft import Engine
from camshaft.engine.data.shares import Share, unpadded


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


def test_training_keeps_the_repeats_since_ranks_step_together():
    assert [len(flat(share_of(rank, 2, training=True, batch_size=83))) for rank in (0, 1)] == [
        250
    ] * 2


def test_who_drops_the_rest_has_it_dropped():
    shares = [
        flat(share_of(r, 2, drop_samples=True, batch_size=50, drop_last=True)) for r in (0, 1)
    ]
    assert [len(share) for share in shares] == [200, 200]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_persistent_workers_serve_training_and_evaluation_over_one_loader_in_turn():
    data = range(7)
    sampler = DistributedSampler(data, num_replicas=2, rank=1, shuffle=False)
    loader = DataLoader(data, 2, sampler=sampler, num_workers=1, persistent_workers=True)
    seen = []
    engine = Engine(lambda state, batch: seen.append((state.training, batch.tolist())))
    for _ in range(2):
        engine.run(loader, max_epochs=1)
        engine.evaluate(loader)
    training, evaluation = [1, 3, 5, 0], [1, 3, 5]
    assert flat([batch for is_training, batch in seen if is_training]) == training * 2
    assert flat([batch for is_training, batch in seen if not is_training]) == evaluation * 2


class Reversed(DistributedSampler):
    def __iter__(self):
        return reversed(list(super().__iter__()))


def test_samplers_that_go_their_own_way_are_left_alone():
    own = Reversed(range(5), num_replicas=2, rank=1)
    assert unpadded(own) is own
    for other in (RandomSampler(range(5)), BatchSampler(own, 2, False)):
        assert unpadded(other) is other


def test_fewer_samples_than_ranks_is_an_error_on_every_rank():
    for rank in (0, 1, 2):
        with pytest.raises(ValueError, match="an evaluation of 2 samples on 3 ranks"):
            Share(DistributedSampler(range(2), num_replicas=3, rank=rank))
