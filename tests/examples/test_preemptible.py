"""The example for machines that are taken away, taken away from it."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from camshaft.handlers.checkpoint import checkpoints

EXAMPLE = Path(__file__).parents[2] / "examples" / "preemptible.py"


def rows(directory):
    path = directory / "rows.jsonl"
    return path.read_text() if path.exists() else ""


def kill_after(number, process, directory):
    """Send SIGTERM to the whole process group, workers and all, when there are so many rows."""
    with process:
        while rows(directory).count("\n") < number and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM, group=True)
        _, err = process.communicate()
    assert process.returncode == 143, err
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # no worker is left
    newest = checkpoints(directory)[-1].manifest
    assert "SIGTERM" in newest.reason
    return newest.iteration


@pytest.fixture(scope="module")
def whole(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    return directory, processes.run(EXAMPLE, "--directory", directory, "--workers", 0).stdout


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


def test_killed_with_its_workers_and_run_again_it_is_the_same_run(processes, tmp_path, whole):
    expected, printed = whole
    command = (EXAMPLE, "--directory", tmp_path)
    first = kill_after(30, processes.start(*command), tmp_path)
    second = kill_after(90, processes.start(*command), tmp_path)
    assert 0 < first < second < 900
    assert processes.run(*command).stdout == printed
    check_equal(tmp_path, expected)


@pytest.mark.slow
def test_run_in_parts_by_the_clock_it_is_the_same_run(processes, tmp_path, whole):
    expected, printed = whole
    command = (EXAMPLE, "--directory", tmp_path, "--workers", 0)
    stopped = processes.run(*command, "--seconds", 0.2, code=75)
    assert stopped.stdout.endswith("0.2 seconds are over\n")
    assert processes.run(*command).stdout == printed
    check_equal(tmp_path, expected)
