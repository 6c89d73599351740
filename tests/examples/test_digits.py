"""The main job, as its user runs it."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"


@pytest.fixture(scope="module")
def run(processes):
    return lambda directory, *arguments, **options: processes.run(
        EXAMPLE, "--directory", directory, *arguments, **options
    )


def accuracy(result):
    return float(re.search(r"test accuracy: ([\d.]+)%", result.stdout)[1])


@pytest.fixture(scope="module")
def finished(run, tmp_path_factory):
    directory = tmp_path_factory.mktemp("digits")
    return directory, run(directory)


def test_it_reaches_98_percent(finished):
    _, result = finished
    assert accuracy(result) >= 98


def test_it_leaves_checkpoints_events_and_rows(finished):
    directory, _ = finished
    checkpoints = sorted(directory.glob("iteration-*"))
    assert 2 <= len(checkpoints) <= 3
    for checkpoint in checkpoints:
        assert {path.name for path in checkpoint.iterdir()} == {
            *("model.safetensors", "train.safetensors", "state.json", "manifest.json")
        }
    assert list(directory.glob("events.out.tfevents.*"))
    rows = [json.loads(line) for line in (directory / "rows.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows if "val/accuracy" in row] == list(
        range(1, rows[-1]["epoch"] + 1)
    )


def test_run_again_it_says_that_it_is_done(run, finished):
    directory, first = finished
    before = (directory / "rows.jsonl").read_text()
    again = run(directory)
    assert "nothing to run: the run is over" in again.stderr
    assert again.stdout == first.stdout
    assert (directory / "rows.jsonl").read_text() == before


def test_stopped_and_run_again_it_carries_on_as_the_same_run(processes, run, tmp_path):
    # The schedule spans the whole run, so the first part is not a shorter run but a killed one.
    whole = run(tmp_path / "whole", "--max-epochs", "4")
    four = ("--directory", tmp_path / "parts", "--max-epochs", "4")
    with processes.start(EXAMPLE, *four, fresh=True) as process:
        for line in process.stderr:
            if line.startswith("epoch 2/4: 100%"):
                process.kill()
                break
    assert process.returncode == -9
    parts = run(tmp_path / "parts", "--max-epochs", "4", "--seed", "7", fresh=True)
    assert parts.stdout == whole.stdout
    assert (tmp_path / "parts" / "rows.jsonl").read_text() == (
        tmp_path / "whole" / "rows.jsonl"
    ).read_text()
    newest, expected = (max((tmp_path / name).glob("iteration-*")) for name in ("parts", "whole"))
    for name in ("model", "train"):  # the generators nobody seeded differ, and nothing else
        ours, theirs = (load_file(each / f"{name}.safetensors") for each in (newest, expected))
        keys = [key for key in theirs if not key.startswith("run.")]
        assert keys
        assert all(torch.equal(ours[key], theirs[key]) for key in keys)
