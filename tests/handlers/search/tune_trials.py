"""Three trials by Ray Tune: one to its end, one that is killed, one that is stopped."""

import json
import os
import signal
import sys
import warnings
from pathlib import Path

import ray
from ray import tune


def train(config):
    import torch
    from torch import nn

    from camshaft import Events, Stage, supervised
    from camshaft.handlers import Checkpoint, RayTune, Validate

    given, notes = tune.get_checkpoint(), Path(config["notes"])
    torch.manual_seed(0 if given is None else 1)  # another process may draw other numbers before
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    data = torch.utils.data.TensorDataset(torch.arange(24.0).reshape(12, 2), torch.ones(12, 1))
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    checkpoint = Checkpoint("checkpoints", resume=given.to_directory() if given else True)
    reports = RayTune(checkpoint, metrics=["val/loss", "loss"])
    engine.add(Validate(torch.utils.data.DataLoader(data, 4)), checkpoint, reports)

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


def fit(name, directory, stop=None):
    (result,) = tune.Tuner(
        train,
        param_space={"name": name, "notes": str(directory)},
        run_config=tune.RunConfig(
            name=name,
            storage_path=str(directory),
            stop=stop,
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=1),
        ),
    ).fit()
    columns = ["epoch", "iteration", "step", "loss", "val/loss"]
    rows = result.metrics_dataframe[columns].to_dict("records")
    return {"rows": rows, "checkpoint": result.checkpoint.path, "error": str(result.error or "")}


def outside():
    """What a run in no trial raises."""
    from camshaft import Engine
    from camshaft.handlers import RayTune

    try:
        Engine(lambda state, batch: batch, RayTune()).run([1], max_epochs=1)
    except RuntimeError as error:
        return str(error)


directory = Path(sys.argv[1])
warnings.simplefilter("ignore")  # Ray's own
results = {"outside": outside()}
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
results["whole"] = fit("whole", directory)
results["killed"] = fit("killed", directory)
results["stopped"] = fit("stopped", directory, stop={"epoch": 2})
(directory / "results.json").write_text(json.dumps(results))
