"""The examples of sweeps, as their users run them."""

import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_a_sweep_finds_settings_and_run_again_says_which(processes, tmp_path):
    command = (EXAMPLES / "sweep.py", "--directory", tmp_path, "--trials", 3, "--max-epochs", 3)
    first, again = processes.run(*command), processes.run(*command)
    best = float(re.search(r"best of 3 trials: accuracy ([\d.]+)%", first.stdout)[1])
    assert best > 60
    assert again.stdout == first.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1", "2", "study.db"}


@pytest.mark.soak
def test_ray_tune_sweeps_too(processes, tmp_path):
    command = (EXAMPLES / "sweep_ray.py", "--directory", tmp_path)
    result = processes.run(*command, "--trials", 2, "--max-epochs", 2, fresh=True)
    assert re.search(r"^best of 2 trials: loss [\d.]+, {'lr': ", result.stdout, re.M)
    assert list(tmp_path.glob("digits/train_*/checkpoint_*/manifest.json"))
