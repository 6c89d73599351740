"""Two processes over gloo, under torchrun where `torchrun` is called."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

HERE = Path(__file__).parent
WRITERS = {"Journal", "TensorBoard", "JSONLines", "ProgressBar"}


def torchrun(*arguments):
    """The only launch of the real one: other tests have their ranks from `processes`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--master-port=0", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    result = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-4000:]
    return result


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    directory = tmp_path_factory.mktemp("ddp")
    result = torchrun(HERE / "digits_on_ranks.py", directory, 3)
    ranks = [json.loads((directory / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    return directory, ranks, result


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
    directory, (first, second), result = two_ranks
    run = directory / "run"
    rows = [json.loads(line) for line in (run / "rows.jsonl").read_text().splitlines()]
    clocks = [(row["iteration"], row["epoch"]) for row in rows if "val/loss" in row]
    assert clocks == [(36, 1), (72, 2), (108, 3)]
    assert len(list(run.glob("events.out.tfevents.*"))) == 1
    assert set(first["handlers"]) - set(second["handlers"]) == WRITERS
    assert result.stdout.count("test accuracy") == 1


def test_the_run_carries_on_from_its_checkpoint_on_both_ranks(two_ranks, processes, tmp_path):
    directory, whole, _ = two_ranks
    processes.run_ranks(2, HERE / "digits_on_ranks.py", tmp_path, 3)
    again = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert again == whole  # the same run to the last bit, so the next line is worth something
    first, _ = processes.run_ranks(2, HERE / "digits_on_ranks.py", directory, 3)
    assert "nothing to run: the run is over (max_epochs)" in first.stderr
