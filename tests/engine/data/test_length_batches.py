"""Batches of samples of like length, and padding."""

from collections import namedtuple

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from camshaft import LengthBatches, Padded


def of_rank(rank, ranks, *arguments, **options):
    """What one of several ranks gets."""
    batches = LengthBatches(*arguments, **options)
    batches.rank, batches.num_replicas = rank, ranks
    return batches


@given(
    st.lists(st.integers(1, 50), min_size=8, max_size=200),
    st.integers(8, 20),
    st.integers(1, 8),
    st.integers(1, 4),
    st.booleans(),
)
def test_ranks_share_the_batches_that_one_process_has(lengths, size, ranks, pool, shuffle):
    options = {"shuffle": shuffle, "pool": pool}
    whole = list(of_rank(0, 1, lengths, size, **options))
    assert sorted(sum(whole, [])) == list(range(len(lengths)))  # noqa: RUF017
    for rank in range(ranks):
        share = of_rank(rank, ranks, lengths, size, **options)
        # Whoever has none of a short batch repeats one sample, so that all have equally many.
        assert list(share) == [batch[rank::ranks] or batch[:1] for batch in whole]
        assert len(share) == len(whole)


def test_batches_hold_like_lengths_so_there_is_little_padding():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 500, (6400,), generator=generator)

    def padding(batches):
        padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
        return 1 - int(lengths.sum()) / padded

    assert padding(torch.arange(6400).split(32)) > 0.45
    assert padding(LengthBatches(lengths, 32)) < 0.02
    assert padding(LengthBatches(lengths, 32, pool=10)) < 0.1


def test_every_epoch_has_another_order_by_its_number_and_the_seed():
    def epoch(number, **options):
        batches = LengthBatches(range(40), 4, **options)
        batches.set_epoch(number)
        return list(batches)

    assert epoch(0) == epoch(0) != epoch(1)
    assert epoch(0, seed=7) != epoch(0)
    assert epoch(0, shuffle=False) == epoch(1, shuffle=False)
    batches = LengthBatches(range(40), 4, pool=100)
    first, second = ({tuple(batch) for batch in (batches.set_epoch(n), batches)[1]} for n in (0, 1))
    assert first == second  # one pool: the same batches, in another order


def test_samples_that_make_no_whole_batch_can_be_left_out():
    batches = LengthBatches(range(11), 4, drop_last=True)
    assert [len(batch) for batch in batches] == [4, 4]
    assert len(batches) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([1, 2], 0), "needs a sample for each of 1 ranks"),
        (([1, 2], 1, 0), "and a batch in each pool"),
        (([], 2), "got 0 lengths: needs 1"),
    ],
)
def test_what_makes_no_batch_is_refused(arguments, says):
    names = ("lengths", "batch_size", "pool")
    with pytest.raises(ValueError, match=says):
        LengthBatches(**dict(zip(names, arguments, strict=False)))


Pair = namedtuple("Pair", "tokens label")


def test_tensors_are_padded_wherever_they_are_in_a_sample_and_the_rest_is_torchs():
    short, long = torch.tensor([1]), torch.tensor([2, 3])
    padded = [[1, 0], [2, 3]]
    assert Padded()([short, long]).tolist() == padded
    tokens, labels, names = Padded(fields={1: -100})([(short, short, "a"), (long, long, "b")])
    assert (tokens.tolist(), labels.tolist(), names) == (padded, [[1, -100], [2, 3]], ["a", "b"])
    batch = Padded()([Pair(short, 0), Pair(long, 1)])
    assert (type(batch), batch.tokens.tolist(), batch.label.tolist()) == (Pair, padded, [0, 1])
    nested = [{"in": {"x": short.numpy()}, "n": 1.5}, {"in": {"x": long.numpy()}, "n": 2.5}]
    batch = Padded()(nested)
    assert (batch["in"]["x"].tolist(), batch["n"].tolist()) == (padded, [1.5, 2.5])
    frames = Padded(-1)([torch.ones(1, 2), torch.ones(2, 2)])
    assert frames.tolist() == [[[1, 1], [-1, -1]], [[1, 1], [1, 1]]]
    even = [{"x": numpy.ones(2), "y": [1, 2]}, {"x": numpy.zeros(2), "y": [3, 4]}]
    assert str(Padded()(even)) == str(default_collate(even))
    with pytest.raises(ValueError, match="shorter"):
        Padded()([(short, 1), (long,)])
