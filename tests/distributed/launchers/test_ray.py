"""The Ray example on a cluster whose worker, and then whose node, is killed."""

import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ALONE = {
    "RAY_AUTH_MODE": "disabled",  # writes a token into the home directory
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",  # of a busy machine
}
EPOCHS = 4


def run(processes, directory, epochs, *kills):
    """Run the example and kill; what its driver tells."""
    script = HERE / "ray_with_kills.py"
    processes.run(script, directory, epochs, *kills, fresh=True, env=ALONE)
    return json.loads((directory / "told.json").read_text())


def check_same(processes, directory, plain, epochs):
    """Check that a run has the bytes and the rows of one on two ranks that no Ray has started."""
    processes.run_ranks(2, HERE / "ray_alone.py", plain, epochs)
    own = directory / "digits" / "run"
    name = f"iteration-{36 * epochs:010}"
    for file in ("model.safetensors", "train.safetensors"):
        assert (own / name / file).read_bytes() == (plain / name / file).read_bytes()
    assert rows(own) == rows(plain)


def rows(directory):
    """What was logged, without the times."""
    lines = (directory / "rows.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if "time" not in k} for line in lines]


@pytest.fixture(scope="module")
def killed(processes, tmp_path_factory):
    """The only start of Ray outside of soak, since it takes many seconds."""
    directory = tmp_path_factory.mktemp("ray")
    return directory, run(processes, directory, EPOCHS, "node")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_whose_node_was_killed_is_that_of_plain_ranks(killed, processes, tmp_path):
    directory, told = killed
    assert told["with the node"] >= 1
    check_same(processes, directory, tmp_path, EPOCHS)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_so_is_one_whose_workers_and_nodes_were_killed(processes, tmp_path):
    told = run(processes, tmp_path / "ray", 8, "worker", "node", "worker")
    assert told["worker"]
    assert told["left"] == []
    check_same(processes, tmp_path / "ray", tmp_path / "plain", 8)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_run_that_lost_a_node_for_good_goes_on_with_fewer_workers(processes, tmp_path):
    """The batches over all ranks, and so the steps, stay the same."""
    told = run(processes, tmp_path, EPOCHS, "node for good")
    assert told["with the node"] >= 1
    assert (told["metrics"]["epoch"], told["metrics"]["step"]) == (EPOCHS, 36 * EPOCHS)
    assert told["workers"] == [2, 1]
    assert told["metrics"]["val/accuracy"] > 0.9


@pytest.mark.slow
@pytest.mark.timeout(900)  # for whoever runs the fixture
def test_metrics_and_checkpoints_are_where_users_of_ray_look_for_them(killed):
    directory, told = killed
    assert told["metrics"]["epoch"] == EPOCHS
    assert told["metrics"]["iteration"] == 36 * EPOCHS
    rows = {row["epoch"]: row["val/accuracy"] for row in told["rows"]}  # a kill may lose some
    assert rows.get(EPOCHS, told["metrics"]["val/accuracy"]) == told["metrics"]["val/accuracy"]
    assert rows
    assert told["checkpoint"] in told["best"]
    assert len(told["best"]) == 2  # CheckpointConfig(num_to_keep=2)
    kept = {str(path) for path in (directory / "digits").glob("checkpoint_iteration-*")}
    assert kept == set(told["best"])
    own = directory / "digits" / "run" / Path(told["checkpoint"]).name.removeprefix("checkpoint_")
    for file in own.iterdir():  # no second copy
        assert file.samefile(Path(told["checkpoint"]) / file.name)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_process_is_left(killed):
    assert killed[1]["left"] == []
