"""Small runs by Ray: two trials of Ray Tune, and a worker of Ray Train that is killed twice."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import ray.train
from ray import tune


def make(local, resume):
    """The engine, the data and the checkpoints of a small run."""
    import torch
    from torch import nn

    from camshaft import supervised
    from camshaft.handlers import Checkpoint, Validate

    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    data = torch.utils.data.TensorDataset(torch.arange(24.0).reshape(12, 2), torch.ones(12, 1))
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    checkpoint = Checkpoint(local, resume=resume)
    engine.add(Validate(torch.utils.data.DataLoader(data, 4)), checkpoint)
    return engine, loader, checkpoint


def train(config):
    """A trial of Ray Tune; the one called "killed" dies in epoch 3 of its first process."""
    import torch

    from camshaft import Events, Stage
    from camshaft.handlers import RayReport

    given, notes = tune.get_checkpoint(), Path(config["notes"])
    torch.manual_seed(0 if given is None else 1)  # another process may draw other numbers before
    engine, loader, checkpoint = make("checkpoints", given.to_directory() if given else True)
    engine.add(RayReport(checkpoint, metrics=["val/loss", "loss"]))

    @engine.on(Events.EPOCH_COMPLETED(at=3))
    def die(state):
        with (notes / f"{config['name']}.txt").open("a") as file:
            file.write(f"process {os.getpid()} in epoch {state.epoch}\n")
        if config["name"] == "killed" and given is None:
            os.kill(os.getpid(), signal.SIGKILL)

    @engine.on(Events.CLOSED, stage=Stage.REPORT)
    def close(state):
        with (notes / f"{config['name']}.txt").open("a") as file:
            file.write(f"closed in epoch {state.epoch}: {state.stop_reason}\n")

    engine.run(loader, max_epochs=5)


def trials(directory):
    """What Ray Tune has of a trial that is killed, and of one that it stops; they run at once."""
    directory.mkdir(parents=True)
    found = tune.Tuner(
        train,
        param_space={"name": tune.grid_search(["killed", "stopped"]), "notes": str(directory)},
        run_config=tune.RunConfig(
            name="trials",
            storage_path=str(directory),
            stop=lambda name, row: row["config"]["name"] == "stopped" and row["epoch"] >= 2,
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=1),
        ),
    ).fit()
    columns = ["epoch", "iteration", "step", "loss", "val/loss"]
    return {
        result.config["name"]: {
            "rows": result.metrics_dataframe[columns].to_dict("records"),
            "last": {name: result.metrics[name] for name in columns},
            "checkpoint": result.checkpoint.path,
            "error": str(result.error or ""),
        }
        for result in found
    }


def work(config):
    """A worker of Ray Train, killed between a save and its report, then with all it had locally."""
    import torch

    from camshaft import Events, Stage, ranks
    from camshaft.handlers import RayReport

    given, local = ray.train.get_checkpoint(), Path(config["local"])
    is_fresh = not local.exists()
    torch.manual_seed(0 if given is None else 1)
    engine, loader, checkpoint = make(local, given.to_directory() if given and is_fresh else True)
    with (local.parent / "starts.txt").open("a") as file:
        file.write(f"{Path(given.path).name if given else None} {is_fresh} {ranks.world_size()}\n")

    @engine.on(Events.SAVING, stage=Stage.REPORT)
    def die(state):
        checkpoint.wait(state)
        ray.train.get_all_reported_checkpoints()  # waits until Ray has the earlier reports
        first, second = (local.with_name(f"killed {epoch}") for epoch in (2, 4))
        if state.epoch == 2 and not first.exists():
            first.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if state.epoch == 4 and not second.exists():
            second.touch()
            shutil.rmtree(local)
            os.kill(os.getpid(), signal.SIGKILL)

    engine.add(RayReport(checkpoint))
    engine.run(loader, max_epochs=5)


def whole(directory):
    """The run that nobody kills, outside of Ray."""
    import torch

    torch.manual_seed(0)
    engine, loader, _ = make(directory, None)
    engine.run(loader, max_epochs=5)


def train_with_kills(directory):
    directory.mkdir(parents=True)
    from ray.train.torch import TorchTrainer

    # On another file system than Ray's storage, if there is one, so that Ray copies.
    folders = [Path(each) for each in ("/dev/shm", "/var/tmp", "/tmp") if Path(each).is_dir()]
    elsewhere = [each for each in folders if each.stat().st_dev != directory.stat().st_dev]
    other = tempfile.mkdtemp(dir=[*elsewhere, directory][0])
    local = Path(other, "local")
    result = TorchTrainer(
        work,
        train_loop_config={"local": str(local)},
        scaling_config=ray.train.ScalingConfig(num_workers=1),
        run_config=ray.train.RunConfig(
            name="train",
            storage_path=str(directory),
            failure_config=ray.train.FailureConfig(max_failures=2),
        ),
    ).fit()
    stored = Path(result.checkpoint.path)
    starts = (local.parent / "starts.txt").read_text().splitlines()
    copied = local.stat().st_dev != stored.stat().st_dev
    copied = copied and all(file.stat().st_nlink == 1 for file in stored.iterdir())
    shutil.rmtree(other)
    return {
        "copied": copied,
        "rows": result.metrics_dataframe.to_dict("records"),
        "metrics": result.metrics,
        "checkpoints": [each.path for each, _ in result.best_checkpoints],
        "checkpoint": result.checkpoint.path,
        "starts": starts,
    }


def outside():
    """What a run in no trial raises."""
    from camshaft import Engine
    from camshaft.handlers import RayReport

    try:
        Engine(lambda state, batch: batch, RayReport()).run([1], max_epochs=1)
    except RuntimeError as error:
        return str(error)
