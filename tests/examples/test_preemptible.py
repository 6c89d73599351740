"""The example for machines that are taken away, taken away from it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from camshaft.handlers.checkpoint import checkpoints

EXAMPLE = Path(__file__).parents[2] / "examples" / "preemptible.py"


def start(directory, *arguments):
    command = [sys.executable, EXAMPLE, "--directory", directory, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finish(directory, *arguments):
    with start(directory, *arguments) as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    return out


def rows(directory):
    path = directory / "rows.jsonl"
    return path.read_text() if path.exists() else ""


def kill_after(number, directory, *arguments):
    """Send SIGTERM to the whole process group, workers and all, when there are so many rows."""
    with start(directory, *arguments) as process:
        while rows(directory).count("\n") < number and process.poll() is None:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGTERM)
        _, err = process.communicate()
    assert process.returncode == 143, err
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # no worker is left
    newest = checkpoints(directory)[-1].manifest
    assert "SIGTERM" in newest.reason
    return newest.iteration


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    return directory, finish(directory, "--workers", 0)


def check_equal(directory, whole):
    assert rows(directory) == rows(whole)
    newest, expected = (checkpoints(each)[-1].path for each in (directory, whole))
    assert newest.name == expected.name
    name = "model.safetensors"
    assert (newest / name).read_bytes() == (expected / name).read_bytes()
    ours, theirs = (load_file(each / "train.safetensors") for each in (newest, expected))
    keys = [key for key in theirs if not key.startswith("run.")]  # generators nobody draws from
    assert keys
    assert all(torch.equal(ours[key], theirs[key]) for key in keys)


def test_killed_with_its_workers_and_run_again_it_is_the_same_run(tmp_path, whole):
    expected, printed = whole
    first = kill_after(30, tmp_path)
    second = kill_after(90, tmp_path)
    assert 0 < first < second < 900
    assert finish(tmp_path) == printed
    check_equal(tmp_path, expected)


def test_run_in_parts_by_the_clock_it_is_the_same_run(tmp_path, whole):
    expected, printed = whole
    with start(tmp_path, "--seconds", 0.2, "--workers", 0) as process:
        out, err = process.communicate()
    assert process.returncode == 75, err
    assert out.endswith("0.2 seconds are over\n")
    assert finish(tmp_path, "--workers", 0) == printed
    check_equal(tmp_path, expected)
