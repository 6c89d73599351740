"""Batches of samples of like length, and padding."""

from collections import namedtuple

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, default_collate

from camshaft import Engine, LengthBatches, Padded


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


@given(
    st.lists(st.integers(1, 50), min_size=8, max_size=200),
    st.integers(50, 200),
    st.integers(1, 3),
    st.integers(1, 4),
    st.booleans(),
    st.one_of(st.none(), st.integers(3, 9)),
)
def test_batches_by_tokens_hold_no_more_with_their_padding_and_each_sample_once(
    lengths, most, ranks, pool, shuffle, size
):
    options = {"max_tokens": most, "shuffle": shuffle, "pool": pool, "batch_size": size}
    whole = list(of_rank(0, 1, lengths, **options))
    assert sorted(sum(whole, [])) == list(range(len(lengths)))  # noqa: RUF017
    for batch in whole:
        assert len(batch) * max(lengths[index] for index in batch) <= most
        assert size is None or len(batch) <= size
    for rank in range(ranks):
        share = of_rank(rank, ranks, lengths, **options)
        assert list(share) == [batch[rank::ranks] or batch[:1] for batch in whole]
        assert len(share) == len(whole)


def test_a_batch_by_tokens_ends_where_the_next_sample_does_not_fit():
    def batches(*lengths, **options):
        return list(LengthBatches(lengths, max_tokens=6, shuffle=False, **options))

    assert batches(2, 2, 2, 2) == [[0, 1, 2], [3]]
    assert batches(3, 1, 3, 2) == [[1, 3], [0, 2]]  # by length: 1, 2 | 3, 3
    assert batches(6, 6) == [[0], [1]]
    assert batches(1, 1, 1, batch_size=2) == [[0, 1], [2]]
    lengths = torch.randint(1, 500, (6400,), generator=torch.Generator().manual_seed(0))
    of_like_length = list(LengthBatches(lengths, max_tokens=16384))
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in of_like_length)
    assert 1 - int(lengths.sum()) / padded < 0.05
    assert len(of_like_length) * 16384 < 1.1 * padded  # so batches are nearly full


def test_every_epoch_has_the_same_batches_by_tokens_in_another_order():
    batches = LengthBatches([1 + number % 9 for number in range(80)], max_tokens=20, pool=2)
    first = list(batches)
    batches.set_epoch(1)
    assert first != list(batches)
    assert sorted(first) == sorted(batches)  # so all epochs are of one length
    other = LengthBatches(batches.lengths, max_tokens=20, pool=2, seed=7)
    assert sorted(other) != sorted(first)


@pytest.mark.parametrize(
    ("lengths", "options", "error", "says"),
    [
        ([1, 2], {}, TypeError, "needs batch_size=, max_tokens=, or both"),
        ([3, 9], {"max_tokens": 8}, ValueError, r"sample 1 has 9 tokens; cut it .* or raise max_t"),
        ([3, 0], {"max_tokens": 8}, ValueError, "sample 1 has 0 tokens; leave empty samples out"),
        ([3, -1], {"max_tokens": 8}, ValueError, "sample 1 has -1 tokens"),
        ([1.5], {"max_tokens": 8}, TypeError, "got 1.5 as the length of sample 0: needs its numb"),
        (torch.ones(2), {"max_tokens": 8}, TypeError, r"got tensor\(1.\) as the length"),
        (["ab"], {"max_tokens": 8}, TypeError, "got 'ab' as the length of sample 0"),
        ([], {"max_tokens": 8}, ValueError, "got no samples"),
        ([1], {"max_tokens": 0}, ValueError, r"max_tokens=0\): needs a whole number of tokens"),
        ([1], {"max_tokens": 8.0}, TypeError, r"max_tokens=8.0\): needs a whole number"),
        ([1], {"max_tokens": 8, "drop_last": True}, ValueError, "none is whole; leave drop_last o"),
        ([1], {"max_tokens": 8, "batch_size": 0}, ValueError, "needs a sample for each"),
    ],
)
def test_what_cannot_be_counted_in_tokens_is_refused(lengths, options, error, says):
    with pytest.raises(error, match=says):
        LengthBatches(lengths, **options)


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


def test_a_number_of_lengths_that_is_not_that_of_the_samples_is_an_error():
    for lengths in ([1, 2, 3, 4], [1, 2, 3, 4, 5, 6]):
        loader = DataLoader([1.0] * 5, batch_sampler=LengthBatches(lengths, 2))
        with pytest.raises(ValueError, match=f"got {len(lengths)} lengths, and the data set has 5"):
            Engine(lambda state, batch: None).run(loader, max_epochs=1)


@pytest.mark.parametrize("first_has_all", [True, False])
def test_samples_with_other_fields_than_the_first_one_are_refused_in_either_order(first_has_all):
    samples = [{"ids": torch.ones(2), "mask": torch.ones(2)}, {"ids": torch.ones(3)}]
    with pytest.raises(ValueError, match=r"sample 1 of a batch has the fields .*the same fields"):
        Padded()(samples if first_has_all else samples[::-1])
