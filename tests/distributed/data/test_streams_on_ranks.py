"""A stream over shards on ranks that are killed, and that become others in mid-epoch."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

SCRIPT = Path(__file__).with_name("streams_on_ranks.py")
SIZES = [7, 12, 0, 9, 30, 4, 18, 1, 11, 6, 16, 25]
IDS = [[shard, place] for shard, size in enumerate(SIZES) for place in range(size)]


def stage(processes, directory, name, count, code=0, **plan):
    """What each of so many ranks tells of its part of the run."""
    arguments = (SCRIPT, directory, name, json.dumps({"batch": 4, **plan}))
    if count > 1:
        processes.run_ranks(count, *arguments, code=code)
    else:
        processes.run(*arguments, code=code)
    return [json.loads((directory / f"{name}-{rank}.json").read_text()) for rank in range(count)]


def given_in(parts):
    """By epoch: the samples of all ranks."""
    found = {}
    for part in parts:
        for epoch, _, _, ids, _ in part["seen"]:
            found.setdefault(epoch, []).extend(ids)
    return {epoch: sorted(ids) for epoch, ids in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "counts",
    [
        [4, 2],
        pytest.param([2, 3, 1], marks=pytest.mark.soak),
        pytest.param([1, 4, 3], marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_each_sample_of_an_epoch_comes_once_on_numbers_of_ranks_in_turn(
    processes, tmp_path, counts, workers
):
    parts, stop_at = [], 0
    for number, count in enumerate(counts):
        stop_at += 4
        is_last = number == len(counts) - 1
        plan = {} if is_last else {"stop_at": stop_at}
        plan |= {"batch": 12 // count, "workers": workers}
        parts += stage(processes, tmp_path, str(number), count, **plan)
    assert given_in(parts) == {1: IDS, 2: IDS}
    assert {part["reason"] for part in parts[-counts[-1] :]} == {"max_epochs"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "workers", "accumulate"),
    [
        (1, 2, 1),
        (2, 0, 2),
        *(pytest.param(*e, marks=pytest.mark.soak) for e in [(1, 0, 2), (2, 2, 1), (3, 2, 2)]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_run_that_is_killed_goes_on_to_the_same_bits(
    processes, tmp_path, count, workers, accumulate
):
    plan = {"workers": workers, "accumulate": accumulate}
    whole_at, cut_at = tmp_path / "whole", tmp_path / "cut"
    whole_at.mkdir()
    cut_at.mkdir()
    whole = stage(processes, whole_at, "whole", count, **plan)
    first = stage(processes, cut_at, "first", count, code=None, killed_at=7, **plan)
    last = stage(processes, cut_at, "last", count, **plan)
    assert given_in(whole) == {1: IDS, 2: IDS}
    for rank in range(count):
        began = last[rank]["seen"][0][1]
        assert began == 7 if accumulate == 1 else began in (5, 7)
        before = [each for each in first[rank]["seen"] if each[1] < began]
        assert before + last[rank]["seen"] == whole[rank]["seen"]
        assert last[rank]["weights"] == whole[rank]["weights"]


def test_ranks_with_unequal_shards_take_the_steps_of_one_process_over_all_their_samples(
    processes, tmp_path
):
    parts = stage(processes, tmp_path, "whole", 3)
    assert sorted(one for part in parts for one in part["evaluated"]) == IDS
    assert given_in(parts) == {1: IDS, 2: IDS}
    assert {len(part["seen"]) for part in parts} == {len(parts[0]["seen"])}
    steps = [*zip(*(part["seen"] for part in parts), strict=True)]
    assert {0, 1} < {share for step in steps for _, _, share, _, _ in step}
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    for step in steps:
        rows = torch.tensor([row for *_, own in step for row in own], dtype=torch.float64)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(rows[:, :3]), rows[:, 3:]).backward()
        optimizer.step()
    by_hand = torch.cat([each.detach().flatten() for each in model.parameters()]).tolist()
    for part in parts:
        pairs = zip(part["weights"], by_hand, strict=True)
        assert max(abs(a - b) for a, b in pairs) <= 1e-12


@pytest.mark.slow
def test_passes_of_virtual_epochs_stay_in_step(processes, tmp_path):
    limits = {"epoch_length": 5, "max_epochs": 9}
    parts = stage(processes, tmp_path, "first", 3, limits=limits, stop_at=13)
    parts += stage(processes, tmp_path, "last", 2, batch=6, limits=limits)
    seen = sorted((each[1], each[3]) for part in parts for each in part["seen"])
    flat = [one for _, ids in seen for one in ids]
    passes = [sorted(flat[: len(IDS)]), flat[len(IDS) : 2 * len(IDS)]]
    assert passes[0] == IDS
    assert len({*map(tuple, passes[1])}) == len(passes[1]) > 100
