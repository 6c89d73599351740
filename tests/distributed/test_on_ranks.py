"""Runs of two and more processes over gloo."""

import importlib.util
import json
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from camshaft.handlers.checkpoint import checkpoints

HERE = Path(__file__).parent
EVALUATION = HERE / "evaluation_on_ranks.py"
SIGNAL = HERE / "signal_on_one_rank.py"
UNEVEN = HERE / "uneven_on_ranks.py"
WRITERS = {"ImageFiles", "Journal", "TensorBoard", "JSONLines", "ProgressBar"}


def digits(processes, directory):
    """Train on two ranks; what each of them ends with, and what both have printed."""
    results = processes.run_ranks(2, HERE / "digits_on_ranks.py", directory, 3)
    return ends(directory), results


def ends(directory):
    return [json.loads((directory / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def two_ranks(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("ddp")
    return directory, *digits(processes, directory)


def test_both_ranks_end_with_identical_weights(two_ranks):
    _, (first, second), _ = two_ranks
    assert first["weights"] == second["weights"]


def test_metrics_are_over_the_samples_of_all_ranks(two_ranks):
    directory, (first, second), _ = two_ranks
    assert first["accuracy"] == second["accuracy"]
    assert first["loss"] == second["loss"]

    spec = importlib.util.spec_from_file_location("digits", HERE.parents[1] / "examples/digits.py")
    digits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digits)
    model = digits.build_model().eval()
    newest = max((directory / "run").glob("iteration-*"))
    model.load_state_dict(load_file(newest / "model.safetensors"))
    data = digits.load_data(32)[2].dataset
    inputs, targets = (torch.stack(parts) for parts in zip(*data, strict=True))
    with torch.no_grad():
        right = (model(inputs).argmax(1) == targets).sum().item()
    assert len(data) == 360
    assert first["accuracy"] == pytest.approx(right / 360, abs=1e-7)


def test_there_is_one_set_of_files_and_one_rank_that_writes_them(two_ranks):
    directory, (first, second), results = two_ranks
    run = directory / "run"
    rows = [json.loads(line) for line in (run / "rows.jsonl").read_text().splitlines()]
    clocks = [(row["iteration"], row["epoch"]) for row in rows if "val/loss" in row]
    assert clocks == [(36, 1), (72, 2), (108, 3)]
    assert len(list(run.glob("events.out.tfevents.*"))) == 1
    assert set(first["handlers"]) - set(second["handlers"]) == WRITERS
    assert sum(each.stdout.count("test accuracy") for each in results) == 1


def test_the_run_carries_on_from_its_checkpoint_on_both_ranks(two_ranks, processes):
    directory, whole, _ = two_ranks
    again, (first, _) = digits(processes, directory)
    assert again == whole
    assert "nothing to run: the run is over (max_epochs)" in first.stderr


@pytest.mark.slow
def test_it_is_the_same_run_to_the_last_bit_under_torchrun(two_ranks, processes, tmp_path):
    """Other tests have their ranks from `processes`, which does what torchrun does."""
    processes.torchrun(HERE / "digits_on_ranks.py", tmp_path, 3)
    _, whole, _ = two_ranks
    assert ends(tmp_path) == whole


def results(processes, directory, count):
    if count > 1:
        processes.run_ranks(count, EVALUATION, directory)
    else:
        processes.run(EVALUATION, directory, "alone")
    return [json.loads((directory / f"{count}-{rank}.json").read_text()) for rank in range(count)]


@pytest.fixture(scope="module")
def alone(processes, tmp_path_factory):
    return results(processes, tmp_path_factory.mktemp("alone"), 1)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "count", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.soak)]
)
def test_loss_accuracy_and_what_is_collected_are_those_of_one_rank(
    alone, processes, tmp_path, count
):
    assert alone["in order"]
    found = results(processes, tmp_path, count)
    for each in found:
        for name in ("accuracy", "loss", "in order"):
            assert each[name] == alone[name]
        assert each == found[0]  # averages and the best weights too
    if count == 2:  # the run is over, and its best weights are there again
        assert results(processes, tmp_path, count) == found


@pytest.fixture(scope="module")
def ranks(processes, tmp_path_factory):
    """What each of so many ranks has written down."""

    @cache
    def run(count, stop_at):
        directory = tmp_path_factory.mktemp("run")
        script = HERE / "schedules_on_ranks.py"
        results = processes.run_ranks(count, script, directory, stop_at)
        assert not any("lr_scheduler" in each.stderr for each in results)  # called in wrong order
        files = [directory / f"rank-{rank}.json" for rank in range(count)]
        return [json.loads(file.read_text()) for file in files]

    return run


@pytest.mark.parametrize(
    ("count", "stop_at"),
    [*((2, 0), (2, 7)), *(pytest.param(4, stop_at, marks=pytest.mark.soak) for stop_at in (0, 8))],
)
def test_the_rates_are_the_same_on_however_many_ranks_interrupted_or_not(ranks, count, stop_at):
    (alone,) = ranks(1, 0)
    assert len(alone["rates"]) == 9
    assert [each["rates"] for each in ranks(count, stop_at)] == [alone["rates"]] * count


def test_an_interrupted_run_with_frozen_layers_is_the_same_run_on_two_ranks(ranks):
    whole, interrupted = ranks(2, 0), ranks(2, 7)
    assert whole == interrupted
    assert whole[0]["weights"] == whole[1]["weights"]


def test_a_signal_on_one_rank_and_the_clock_of_the_first_stop_both_at_the_same_iteration(
    processes, tmp_path
):
    processes.run_ranks(2, SIGNAL, tmp_path)
    results = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert results == [{"by the clock": 7, "by the signal": 9, "code": 99}] * 2
    saved = [each.manifest for each in checkpoints(tmp_path / "run")]
    assert [(each.iteration, each.reason) for each in saved] == [
        (7, "65 seconds are over"),
        (9, "SIGTERM"),
    ]


def test_ranks_with_different_numbers_of_batches_end_together(processes, tmp_path):
    for rank, result in enumerate(processes.run_ranks(2, UNEVEN, tmp_path)):
        assert result.stdout.count(f"rank {rank}: ") == 15


def test_ranks_that_are_not_alike_are_told_before_the_first_batch(processes):
    """Settings, handlers, limits, forms; and what is meant to differ stays silent."""
    for rank, result in enumerate(processes.run_ranks(3, HERE / "alike_on_ranks.py")):
        assert result.stdout.count(f"rank {rank}: ") == 17
