"""The example of a pipeline: its layers train as on one rank, and a killed run is the whole run."""

import json
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from camshaft.handlers import checkpoints

PIPELINE = Path(__file__).parents[2] / "examples" / "pipeline.py"
SHORT = ("--samples", "328", "--epochs", "6")  # ten batches an epoch


def weights(directory):
    """The weights of all layers, in their order, and the rows."""
    stages = sorted(directory.glob("stage-*"))
    newest = [checkpoints(each).latest().path / "model.safetensors" for each in stages]
    tensors = [list(load_file(each).values()) for each in newest]
    return [each for stage in tensors for each in stage]


def rows(directory):
    return [json.loads(line) for line in (directory / "rows.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(processes, tmp_path_factory):
    """Runs on two ranks, by schedule."""
    found = {}
    for schedule in ("1F1B", "GPipe"):
        found[schedule] = tmp_path_factory.mktemp("whole")
        processes.run_ranks(
            2, PIPELINE, "--directory", found[schedule], *SHORT, "--schedule", schedule
        )
    return found


def test_stages_train_as_the_same_layers_on_one_rank(processes, whole, tmp_path):
    processes.run_ranks(1, PIPELINE, "--directory", tmp_path, *SHORT, "--schedule", "GPipe")
    alone = rows(tmp_path)
    assert len(alone) > 1
    assert alone[-1]["loss"] < 0.9 * alone[0]["loss"]
    assert all(row["grad_norm"] > 0 for row in alone)
    for directory in whole.values():
        for ours, theirs in zip(rows(directory), alone, strict=True):
            for name in ("loss", "grad_norm"):
                assert ours[name] == pytest.approx(theirs[name], rel=1e-4)


@pytest.mark.slow
def test_two_batches_a_step_train_as_one_of_twice_the_size(processes, whole, tmp_path):
    script = Path(__file__).with_name("accumulating_pipeline.py")
    processes.run_ranks(2, script, "--directory", tmp_path, *SHORT)
    for ours, theirs in zip(weights(tmp_path), weights(whole["1F1B"]), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_makes_no_step_on_any_stage(processes, tmp_path):
    script = Path(__file__).with_name("spoiled_pipeline.py")
    for result in processes.run_ranks(2, script, tmp_path):
        told = json.loads(result.stdout.splitlines()[-1])
        assert told == {"iterations": 20, "steps": 18}
    assert all(bool(each.isfinite().all()) for each in weights(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_killed_at_any_rank_it_continues_as_the_same_run(processes, whole, tmp_path, rank):
    command = (PIPELINE, "--directory", tmp_path, *SHORT)
    with ExitStack() as stack:
        started = [stack.enter_context(each) for each in processes.start_ranks(2, *command)]
        own = tmp_path / f"stage-{rank}-of-2"
        while not (own.is_dir() and checkpoints(own)) and started[rank].poll() is None:
            time.sleep(0.002)
        started[rank].kill()
        for each in started:
            each.kill()
    assert checkpoints(own)[-1].manifest.iteration < 60
    processes.run_ranks(2, *command)
    assert rows(tmp_path) == rows(whole["1F1B"])
    pairs = zip(weights(tmp_path), weights(whole["1F1B"]), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.slow
def test_killed_in_its_first_save_it_begins_anew_and_with_more_lost_it_is_an_error(
    processes, whole, tmp_path
):
    command = (PIPELINE, "--directory", tmp_path, *SHORT)
    own = tmp_path / "stage-0-of-2"
    saved = checkpoints(whole["1F1B"] / "stage-0-of-2")
    assert [each.manifest.iteration for each in saved] == [20, 40, 60]
    for count in (2, 1):
        shutil.rmtree(own, ignore_errors=True)
        for each in saved[:count]:
            shutil.copytree(each.path, own / each.path.name)
        results = processes.run_ranks(2, *command, code=int(count > 1))
        assert count == 1 or "no iteration is saved on all ranks" in results[0].stderr
    assert rows(tmp_path) == rows(whole["1F1B"])


@pytest.mark.slow
def test_four_stages_train_as_two_and_another_number_is_refused(processes, whole, tmp_path):
    processes.run_ranks(4, PIPELINE, "--directory", tmp_path, *SHORT)
    for ours, theirs in zip(weights(tmp_path), weights(whole["1F1B"]), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)
    before = sorted(tmp_path.rglob("*"))
    for result in processes.run_ranks(2, PIPELINE, "--directory", tmp_path, *SHORT, code=1):
        assert "is of another number of ranks" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before
