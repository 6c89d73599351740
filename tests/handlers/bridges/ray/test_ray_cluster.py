"""Runs on a cluster of Ray whose workers and nodes are killed, and what Ray's users find there."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak  # a start of Ray takes many seconds
HERE = Path(__file__).parent
ALONE = {
    "RAY_AUTH_MODE": "disabled",  # writes a token into the home directory
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.2",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",  # of a busy machine
}
EPOCHS = 3


def run(processes, directory, epochs, *kills):
    """Run the example and kill; what its driver tells."""
    script = HERE / "cluster.py"
    processes.run(script, directory, epochs, *kills, fresh=True, env=ALONE)
    return json.loads((directory / "told.json").read_text())


def check_same(processes, directory, plain, epochs):
    """Check that a run has the bytes and the rows of one on two ranks that no Ray has started."""
    processes.run_ranks(2, HERE / "alone.py", plain, epochs)
    own = directory / "digits" / "run"
    name = f"iteration-{36 * epochs:010}"
    same_weights(own / name, plain / name)
    assert rows(own) == rows(plain)


def rows(directory):
    """What was logged, without the times."""
    lines = (directory / "rows.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if "time" not in k} for line in lines]


@pytest.fixture(scope="module")
def killed(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("ray")
    return directory, run(processes, directory, EPOCHS, "node", "trials")


@pytest.mark.timeout(900)
def test_a_run_whose_node_was_killed_is_that_of_plain_ranks(killed, processes, tmp_path):
    directory, told = killed
    assert told["with the node"] >= 1
    check_same(processes, directory, tmp_path, EPOCHS)


@pytest.fixture(scope="module")
def often_killed(processes, tmp_path_factory):
    """A run that loses a worker, a node, and a worker again; then a small one."""
    directory = tmp_path_factory.mktemp("ray")
    return directory, run(processes, directory, 8, "worker", "node", "worker", "copies")


@pytest.mark.timeout(1800)
def test_so_is_one_whose_workers_and_nodes_were_killed(often_killed, processes, tmp_path):
    directory, told = often_killed
    assert told["worker"]
    assert told["left"] == []
    check_same(processes, directory, tmp_path, 8)


@pytest.mark.timeout(1800)
def test_a_run_whose_checkpoints_ray_copies_is_the_same_after_a_kill_and_without_its_directory(
    often_killed,
):
    """Killed between a save and its report, and then with the directory of its checkpoints."""
    directory, told = often_killed
    results = told["copies"]
    assert results["copied"]  # from one file system to another
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
    same_weights(results["checkpoint"], directory / "whole" / "iteration-0000000015")


@pytest.mark.timeout(900)
def test_a_run_that_lost_a_node_for_good_goes_on_with_fewer_workers(processes, tmp_path):
    """The batches over all ranks, and so the steps, stay the same."""
    told = run(processes, tmp_path, EPOCHS, "node for good")
    assert told["with the node"] >= 1
    assert (told["metrics"]["epoch"], told["metrics"]["step"]) == (EPOCHS, 36 * EPOCHS)
    assert told["workers"] == [2, 1]
    assert told["metrics"]["val/accuracy"] > 0.9


@pytest.mark.timeout(900)  # for whoever runs the fixture
def test_metrics_and_checkpoints_are_where_users_of_ray_look_for_them(killed):
    directory, told = killed
    assert told["metrics"]["epoch"] == EPOCHS
    assert told["metrics"]["iteration"] == 36 * EPOCHS
    rows = {row["iteration"]: row["val/accuracy"] for row in told["rows"]}
    assert rows.keys() == {int(Path(path).name[-10:]) for path in told["best"]}
    assert rows[36 * EPOCHS] == told["metrics"]["val/accuracy"]  # a kill never takes the last one
    lines = (directory / "digits" / "run" / "rows.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines]
    measured = {row["iteration"]: row["val/accuracy"] for row in logged if "val/accuracy" in row}
    assert rows == {iteration: measured[iteration] for iteration in rows}
    assert told["checkpoint"] in told["best"]
    assert len(told["best"]) == 2  # CheckpointConfig(num_to_keep=2)
    kept = {str(path) for path in (directory / "digits").glob("checkpoint_iteration-*")}
    assert kept == set(told["best"])
    own = directory / "digits" / "run" / Path(told["checkpoint"]).name.removeprefix("checkpoint_")
    for file in own.iterdir():  # no second copy
        assert file.samefile(Path(told["checkpoint"]) / file.name)


@pytest.mark.timeout(900)
def test_no_process_is_left(killed):
    assert killed[1]["left"] == []


@pytest.mark.timeout(900)
def test_outside_of_a_trial_the_run_says_so(killed):
    assert "in no worker of Ray Train and in no trial of Ray Tune" in killed[1]["outside"]


def same_weights(one, other):
    for name in ("model.safetensors", "train.safetensors"):
        assert (Path(one) / name).read_bytes() == (Path(other) / name).read_bytes()


@pytest.mark.timeout(900)
def test_a_trial_that_was_killed_goes_on_as_the_same_run_and_reports_each_epoch(killed):
    directory, told = killed
    trial = told["trials"]["killed"]
    first, second, end = (directory / "trials" / "killed.txt").read_text().splitlines()
    assert first.endswith("in epoch 3")
    assert second.endswith("in epoch 3")
    assert first != second  # two processes
    assert end == "closed in epoch 5: max_epochs"
    epochs = [row["epoch"] for row in trial["rows"]]
    assert epochs in ([1, 2, 3, 4, 5], [3, 4, 5])  # Tune may lose those before a kill, and no other
    assert [row["iteration"] for row in trial["rows"]] == [3 * epoch for epoch in epochs]
    assert trial["last"] == trial["rows"][-1]
    manifest = json.loads((Path(trial["checkpoint"]) / "manifest.json").read_text())
    assert manifest["epoch"] == 5
    assert manifest["metrics"]["val/loss"] == trial["last"]["val/loss"]
    same_weights(trial["checkpoint"], directory / "whole" / "iteration-0000000015")


@pytest.mark.timeout(900)
def test_a_trial_that_tune_stops_is_closed_and_not_completed(killed):
    directory, told = killed
    assert [row["epoch"] for row in told["trials"]["stopped"]["rows"]] == [1, 2]
    assert told["trials"]["stopped"]["error"] == ""
    notes = (directory / "trials" / "stopped.txt").read_text()
    assert notes == "closed in epoch 2: Ray Tune ended the trial\n"


@pytest.mark.timeout(900)
def test_a_run_saves_at_once_when_ray_tells_that_a_node_goes_away(processes, tmp_path):
    told = run(processes, tmp_path / "ray", 30, "preemption")
    assert told["just in time"]
    check_same(processes, tmp_path / "ray", tmp_path / "plain", 30)
