"""Reports to Ray Tune and Ray Train: metrics with checkpoints, and runs continued after a kill."""

import json
import sys
from pathlib import Path

import pytest

from camshaft.handlers import RayReport

ALONE = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
"""Nothing is written to the home directory, and nothing is sent."""
SCRIPT = Path(__file__).with_name("ray_runs.py")


def test_mistakes_are_told(monkeypatch):
    with pytest.raises(TypeError, match="needs the Checkpoint handler of the engine"):
        RayReport("runs/demo")
    with pytest.raises(TypeError, match="metrics='loss'.*needs a list of names"):
        RayReport(metrics="loss")
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.train", None)
    with pytest.raises(ImportError, match=r'pip install "camshaft\[ray\]"'):
        RayReport()


@pytest.fixture(scope="module")
def swept(processes, tmp_path_factory):
    """The only start of Ray, which takes many seconds."""
    directory = tmp_path_factory.mktemp("tune")
    processes.run(SCRIPT, directory, "tune", fresh=True, env=ALONE)
    return directory, json.loads((directory / "results.json").read_text())


@pytest.mark.slow
def test_a_trial_reports_each_epoch_with_the_checkpoint_of_that_moment(swept):
    _, results = swept
    assert [row["epoch"] for row in results["whole"]["rows"]] == [1, 2, 3, 4, 5]
    assert [row["iteration"] for row in results["whole"]["rows"]] == [3, 6, 9, 12, 15]
    path = Path(results["whole"]["checkpoint"])
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["epoch"] == 5
    assert manifest["metrics"]["val/loss"] == results["whole"]["rows"][-1]["val/loss"]


@pytest.mark.slow
def test_a_trial_that_was_killed_goes_on_as_the_same_run(swept):
    directory, results = swept
    first, second, end = (directory / "killed.txt").read_text().splitlines()
    assert first.endswith("in epoch 3")
    assert second.endswith("in epoch 3")
    assert first != second  # two processes
    assert end == "closed in epoch 5: max_epochs"
    assert results["killed"]["rows"] == results["whole"]["rows"]
    whole, killed = (Path(results[name]["checkpoint"]) for name in ("whole", "killed"))
    for name in ("model.safetensors", "train.safetensors"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
def test_a_trial_that_tune_stops_is_closed_and_not_completed(swept):
    directory, results = swept
    assert [row["epoch"] for row in results["stopped"]["rows"]] == [1, 2]
    assert results["stopped"]["error"] == ""
    assert (
        directory / "stopped.txt"
    ).read_text() == "closed in epoch 2: Ray Tune ended the trial\n"


@pytest.mark.slow
def test_outside_of_a_trial_the_run_says_so(swept):
    assert "in no worker of Ray Train and in no trial of Ray Tune" in swept[1]["outside"]


@pytest.mark.soak
def test_a_worker_of_ray_train_that_was_killed_goes_on_as_the_same_run(processes, tmp_path):
    """Killed between a save and its report, and then with the directory of its checkpoints."""
    processes.run(SCRIPT, tmp_path, "train", fresh=True, env=ALONE)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["starts"] == [
        "None True 1",
        "checkpoint_iteration-0000000003 False 1",
        "checkpoint_iteration-0000000009 True 1",
    ]
    assert [row["epoch"] for row in results["rows"]] == [1, 2, 3, 4, 5]  # none twice
    assert results["metrics"] == results["rows"][-1]
    assert results["checkpoint"] == results["checkpoints"][-1]
    names = [Path(path).name for path in results["checkpoints"]]
    assert names == [f"checkpoint_iteration-{3 * epoch:010}" for epoch in range(1, 6)]
    for name in ("model.safetensors", "train.safetensors"):
        whole = tmp_path / "whole" / "iteration-0000000015" / name
        assert (Path(results["checkpoint"]) / name).read_bytes() == whole.read_bytes()
