"""A run that goes on on other numbers of ranks is the run of one process: samples and weights."""

import json
from itertools import product
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("any_ranks.py")
LOADERS = ["plain", "loader", "whole batches", "weighted", "batch sampler", "of like length"]
OWN = "batch sampler of one's own"


def stage(processes, directory, name, count, stop_at=0):
    """Train on so many ranks up to an iteration; what each rank tells, by run."""
    if count > 1:
        processes.run_ranks(count, SCRIPT, directory, name, stop_at)
    else:
        processes.run(SCRIPT, directory, name, stop_at)
    return [json.loads((directory / f"{name}-{rank}.json").read_text()) for rank in range(count)]


def steps_of(parts, name):
    """The samples of each iteration over all ranks."""
    steps = {}
    for part in parts:
        for iteration, index in part[name]["seen"]:
            steps.setdefault(iteration, []).extend(index)
    return {iteration: sorted(index) for iteration, index in steps.items()}


@pytest.fixture(scope="module")
def run_of_one_process(processes, tmp_path_factory):
    """What one process does that nobody interrupts, by plan."""
    known = {}

    def of(plan):
        if (key := json.dumps(plan)) not in known:
            directory = tmp_path_factory.mktemp("alone")
            (directory / "plan.json").write_text(key)
            known[key] = stage(processes, directory, "whole", 1)
        return known[key]

    return of


def check(processes, whole, directory, plan, stages):
    """Stages of (ranks, stop) see and learn what one process does."""
    (directory / "plan.json").write_text(json.dumps(plan))
    steps, last = {name: {} for name in plan}, 0
    for number, (count, stop_at) in enumerate(stages):
        parts = stage(processes, directory, str(number), count, stop_at)
        told = [[f"written by {last} ranks" in each for each in part["told"]] for part in parts]
        # Rank 0 alone says that another number of ranks goes on, once a run.
        assert [sum(each) for each in told] == [len(plan) * (last not in (0, count))] + [0] * (
            count - 1
        )
        last = count
        for name in plan:
            found = steps_of(parts, name)
            assert steps[name].keys().isdisjoint(found)
            steps[name].update(found)
    for name in plan:
        expected, (own, *others) = whole[0][name], [part[name] for part in parts]
        assert expected["is_over"]
        assert own["is_over"]
        assert steps[name] == steps_of(whole, name), name
        assert own["step"] == expected["step"], name
        assert all(other["weights"] == own["weights"] for other in others), name
        pairs = zip(own["weights"], expected["weights"], strict=True)
        near = 1e-10 if name == "lbfgs" else 1e-12  # which divides by small differences
        assert max(abs(a - b) for a, b in pairs) <= near, name
        # The means of the epoch that was cut lack what other ranks had added up.
        later = own["losses"][len(stages) > 1 :]
        for a, b in zip(later[::-1], expected["losses"][::-1], strict=False):
            assert a == pytest.approx(b, abs=near), name


PLAN = {
    **{kind: {"kind": kind} for kind in LOADERS},
    OWN: {"kind": OWN, "samples": 84},
    **{how: {"kind": "plain", "how": how} for how in ("accumulated", "counted", "by hand")},
    "augmented": {"kind": "loader", "noise": 0.5},
}


@pytest.mark.slow
def test_four_ranks_then_two_are_the_run_of_one_process(processes, run_of_one_process, tmp_path):
    check(processes, run_of_one_process(PLAN), tmp_path, PLAN, [(4, 3), (2, 0)])


MORE = {
    **PLAN,
    **{how: {"kind": "loader", "how": how} for how in ("each", "split", "lbfgs")},
    **{f"{kind} by hand": {"kind": kind, "how": "by hand"} for kind in LOADERS},
    "virtual epochs": {"kind": "plain", "epoch_length": 5, "max_epochs": 4},
    "cut passes": {"kind": "loader", "max_batches": 5},
    "ninety": {"kind": "plain", "samples": 90},
    "one left": {"kind": "plain", "samples": 85, "how": "counted"},
    "one by one": {"kind": "loader", "samples": 49, "how": "accumulated"},
    "weighted noise": {"kind": "weighted", "noise": 0.5},
    "noise of like length": {"kind": "of like length", "noise": 0.5},
}


@pytest.mark.soak
def test_so_are_four_then_two_then_three_then_one(processes, run_of_one_process, tmp_path):
    check(processes, run_of_one_process(MORE), tmp_path, MORE, [(4, 2), (2, 5), (3, 9), (1, 0)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_so_are_two_then_four_with_workers(processes, run_of_one_process, tmp_path):
    plan = {
        kind: {"kind": kind, "workers": 2, "noise": 0.5}
        for kind in ("plain", "weighted", "of like length")
    }
    check(processes, run_of_one_process(plan), tmp_path, plan, [(2, 3), (4, 0)])


@pytest.mark.soak
@pytest.mark.parametrize(("before", "after"), list(product((1, 2, 3, 4), repeat=2)))
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_so_is_any_change_in_any_part_of_an_epoch(
    processes, run_of_one_process, tmp_path, before, after, workers
):
    plan = {name: {**how, "workers": workers} for name, how in MORE.items()}
    for stop_at in (4, 7, 8):
        directory = tmp_path / str(stop_at)
        directory.mkdir()
        stages = [(before, stop_at), (after, 0)]
        check(processes, run_of_one_process(plan), directory, plan, stages)
