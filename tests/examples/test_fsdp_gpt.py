"""The example of a sharded model, as its users run it."""

import json
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from camshaft.handlers import checkpoints

GPT = Path(__file__).parents[2] / "examples" / "fsdp_gpt.py"
SMALL = ("--length", "32", "--width", "32", "--layers", "2", "--modules", "a*.py")


def bits(result):
    return float(re.search(r"([\d.]+) bits a byte", result.stdout)[1])


@pytest.mark.slow
def test_it_is_one_run_on_one_process_on_ranks_and_after_a_restart_on_others(processes, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    alone = processes.run(GPT, "--directory", whole, "--max-steps", "6", *SMALL)
    options = ("--directory", parts, *SMALL)
    processes.run_ranks(4, GPT, "--max-steps", "3", "--replicas", "2", *options)
    first, _ = processes.run_ranks(2, GPT, "--max-steps", "6", *options)
    assert "6 steps on 2 ranks" in first.stdout
    assert bits(first) == pytest.approx(bits(alone), abs=1e-3)
    rows = [json.loads(row) for row in (parts / "rows.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "val/loss" in row] == [3, 6]
    one, two = (
        load_file(checkpoints(each / "export").latest().path / "ema.safetensors")
        for each in (whole, parts)
    )
    assert one.keys() == two.keys()
    assert all((one[name] - two[name]).abs().max() < 1e-3 for name in one)


class Ranks:
    """Four ranks of the example, started as by torchrun, in processes that a test may end."""

    def __init__(self, processes, directory, *arguments):
        self.directory = directory
        self.processes = processes.start_ranks(4, GPT, "--directory", directory, *arguments)

    def wait_for_saves(self, count):
        """Wait until so many checkpoints have been written."""
        while len([*self.directory.glob("iteration-*")]) < count:
            assert all(each.poll() is None for each in self.processes)
            time.sleep(0.01)

    def end(self, number, rank):
        """Send one rank a signal; the exit codes of all, once each of the others has lost it."""
        self.processes[rank].send_signal(number)
        if number == signal.SIGKILL:
            self.processes[rank].wait()
            for each in self.processes:
                each.wait(20)
                each.kill()
        codes = []
        for each in self.processes:
            with each:
                codes.append(each.result().returncode)
        return codes


def weights(directory):
    """The bytes of all tensors of the newest checkpoint."""
    newest = checkpoints(directory).latest()
    return {file.name: file.read_bytes() for file in newest.path.glob("*.safetensors")}


@pytest.mark.soak
def test_stopped_by_a_signal_and_killed_it_ends_with_the_weights_of_a_whole_run(
    processes, tmp_path
):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = ("--max-steps", "12", "--every", "2", *SMALL)
    processes.run_ranks(4, GPT, "--directory", whole, *options)

    running = Ranks(processes, parts, *options)
    running.wait_for_saves(1)
    assert running.end(signal.SIGTERM, 2) == [143] * 4
    stopped = checkpoints(parts).latest()
    assert "SIGTERM" in stopped.manifest.reason
    assert 0 < stopped.manifest.step < 12

    running = Ranks(processes, parts, *options)
    running.wait_for_saves(2)
    assert -signal.SIGKILL in running.end(signal.SIGKILL, 1)
    killed = checkpoints(parts).latest().manifest.step
    assert killed < 12

    shutil.copytree(parts, tmp_path / "two")
    processes.run_ranks(4, GPT, "--directory", parts, *options)
    assert weights(parts) == weights(whole)

    processes.run_ranks(2, GPT, "--directory", tmp_path / "two", *options)
    one, two = (
        checkpoints(each).latest().state_dict("model") for each in (whole, tmp_path / "two")
    )
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-5  # of float32
