"""An evaluation of 499 samples is the same on any number of ranks, and so is what goes by it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "evaluation_on_ranks.py"


def results(directory, count):
    command = [sys.executable, str(SCRIPT), str(directory), "alone"]
    if count > 1:
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}"]
        command += ["--master-port=0", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
        command += [str(SCRIPT), str(directory)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr[-4000:]
    return [json.loads((directory / f"{count}-{rank}.json").read_text()) for rank in range(count)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return results(tmp_path_factory.mktemp("alone"), 1)[0]


@pytest.mark.parametrize("count", [2, 3, pytest.param(4, marks=pytest.mark.soak)])
def test_loss_accuracy_and_what_is_collected_are_those_of_one_rank(alone, tmp_path, count):
    assert alone["in order"]
    found = results(tmp_path, count)
    for each in found:
        for name in ("accuracy", "loss", "in order"):
            assert each[name] == alone[name]
        assert each == found[0]  # averages and the best weights too
    if count == 2:  # the run is over, and its best weights are there again
        assert results(tmp_path, count) == found


def test_a_compiled_model_is_evaluated_like_a_plain_one_where_ranks_have_unlike_numbers(tmp_path):
    script = SCRIPT.with_name("compiled_on_ranks.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--master-port=0", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    result = subprocess.run(
        [*command, str(script), str(tmp_path)], capture_output=True, text=True, timeout=110
    )
    assert result.returncode == 0, result.stderr[-4000:]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second  # one model on both ranks
    assert first["compiled"] == first["plain"]
