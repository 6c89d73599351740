"""Stopped anywhere and started again by another process, a run is the same run to the last bit."""

from concurrent.futures import ThreadPoolExecutor

import pytest

LENGTH = 21
"""Batches of a run: three epochs of seven, the last of four images."""


def whole(run, directory, *options):
    return run(directory / "whole", *options).result()


def stopped_at(run, directory, stops, *options, other=()):
    """A run that is left at each of `stops`, each time carried on by a process of another seed."""
    for seed, stop in enumerate(stops, 1):
        left = run(directory, "--seed", 0 if seed == 1 else seed, "--until", stop, *options)
        if (outcome := left.result())["stopped"] == "max_epochs":
            return outcome  # the last accumulation window was open at this stop
        options = other or options
    return run(directory, "--seed", 99, *options).result()


def every_stop(run, directory, stops, *options):
    """Each of several lists of stops, two runs at a time; the outcomes by list."""
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(stopped_at, run, directory / str(number), each, *options)
            for number, each in enumerate(stops)
        ]
        return [each.result() for each in runs]


MATRIX = [
    pytest.param(("--workers", workers, "--accumulate", accumulate), id=f"{workers}-{accumulate}")
    for workers in (0, 2, 4)
    for accumulate in (1, 4)
]
WHEN = {"2-4": pytest.mark.slow}
SOME = [
    pytest.param(*each.values, id=each.id, marks=WHEN.get(each.id, pytest.mark.soak))
    for each in MATRIX
]


@pytest.mark.parametrize("first", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("options", SOME)
def test_left_after_every_second_batch_it_is_the_same_run(run, tmp_path, options, first):
    expected = whole(run, tmp_path, *options)
    for outcome in every_stop(run, tmp_path, [range(first, LENGTH, 2)], *options):
        assert outcome == expected


@pytest.mark.soak
@pytest.mark.parametrize("options", [MATRIX[3]])
def test_left_twice_in_an_epoch_at_any_batch_it_is_the_same_run(run, tmp_path, options):
    expected = whole(run, tmp_path, *options)
    stops = [(first, first + 2) for first in range(1, LENGTH - 2, 3)]
    for outcome in every_stop(run, tmp_path, stops, *options):
        assert outcome == expected


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("options", MATRIX)
def test_left_at_each_batch_and_once_more_in_the_epoch_it_is_the_same_run(run, tmp_path, options):
    expected = whole(run, tmp_path, *options)
    stops = [(k, k + 1 + k % 3) if k < LENGTH - 3 else (k,) for k in range(1, LENGTH)]
    for outcome in every_stop(run, tmp_path, stops, *options):
        assert outcome == expected


@pytest.mark.slow
def test_another_number_of_workers_persistent_or_not_is_the_same_run(run, tmp_path):
    expected = whole(run, tmp_path, "--workers", 2)
    assert whole(run, tmp_path / "persistent", "--workers", 2, "--persistent") == expected
    for number, other in enumerate([("--workers", 4), ("--workers", 1, "--persistent")]):
        directory = tmp_path / str(number)
        outcome = stopped_at(run, directory, [3, 9], "--workers", 2, other=other)
        assert outcome == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [("--stream",), pytest.param(("--stream", "--workers", 2), marks=pytest.mark.soak)],
)
def test_a_stream_without_an_index_is_the_same_run(run, tmp_path, options):
    expected = whole(run, tmp_path, *options)
    for outcome in every_stop(run, tmp_path, [(3, 5), (9,), (14, 16)], *options):
        assert outcome == expected


SPOILED = [
    *("python", "numpy", "torch", "worker seed", "pass", "momentum", "schedule", "average"),
    *("patience", "metrics", "step"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        pytest.param(each, marks=pytest.mark.soak if number % 3 else ())
        for number, each in enumerate(SPOILED)
    ],
)
def test_the_comparison_sees_every_part_that_would_not_have_been_saved(run, tmp_path, part):
    workers = ("--workers", 2 if part == "worker seed" else 0)
    expected = whole(run, tmp_path, *workers)
    spoiled = stopped_at(
        run, tmp_path / "spoiled", [10], *workers, other=(*workers, "--spoil", part)
    )
    assert spoiled != expected
