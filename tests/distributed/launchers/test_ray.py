"""The Ray example on a cluster whose worker, and then whose node, is killed."""

import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ALONE = {
    "RAY_AUTH_MODE": "disabled",  # writes a token into the home directory
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
}
EPOCHS = 6


@pytest.fixture(scope="module")
def killed(processes, tmp_path_factory):
    """The only start of Ray, which takes many seconds."""
    directory = tmp_path_factory.mktemp("ray")
    processes.run(HERE / "ray_with_kills.py", directory, EPOCHS, fresh=True, env=ALONE)
    return directory, json.loads((directory / "told.json").read_text())


@pytest.mark.slow
def test_a_run_whose_worker_and_node_were_killed_is_that_of_plain_ranks(
    killed, processes, tmp_path
):
    directory, told = killed
    assert told["worker"].startswith("ray::RayTrainWorker")
    processes.run_ranks(2, HERE / "ray_alone.py", tmp_path, EPOCHS)
    run = directory / "digits" / "run"
    name = "iteration-0000000216"
    for file in ("model.safetensors", "train.safetensors"):
        assert (run / name / file).read_bytes() == (tmp_path / name / file).read_bytes()
    assert rows(run) == rows(tmp_path)


def rows(directory):
    """What was logged, without the times."""
    lines = (directory / "rows.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if "time" not in k} for line in lines]


@pytest.mark.slow
def test_metrics_and_checkpoints_are_where_users_of_ray_look_for_them(killed):
    directory, told = killed
    assert told["metrics"]["epoch"] == EPOCHS
    assert told["metrics"]["iteration"] == 36 * EPOCHS
    assert told["rows"][-1]["val/accuracy"] == told["metrics"]["val/accuracy"]
    assert told["checkpoint"] in told["best"]
    assert len(told["best"]) == 2  # CheckpointConfig(num_to_keep=2)
    kept = {str(path) for path in (directory / "digits").glob("checkpoint_iteration-*")}
    assert kept == set(told["best"])
    own = directory / "digits" / "run" / Path(told["checkpoint"]).name.removeprefix("checkpoint_")
    for file in own.iterdir():  # no second copy
        assert file.samefile(Path(told["checkpoint"]) / file.name)


@pytest.mark.slow
def test_no_process_is_left(killed):
    assert killed[1]["left"] == []
