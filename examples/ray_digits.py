"""Train the digits example on two workers of Ray Train; kill one, and it carries on.

    python examples/ray_digits.py
    python examples/ray_digits.py --address auto    # on a cluster, after `ray start`

Ray starts workers anew after a failure. They go on from the newest checkpoint, as the same run.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.train.torch import TorchTrainer

RESOURCES = {"include_dashboard": False, "object_store_memory": 80 * 2**20}


def train(config: dict[str, Any]) -> None:
    """One worker, in a process of Ray's; the process group is up when it begins."""
    from camshaft import Events
    from camshaft.handlers import RayReport

    engine, loader, checkpoint = build(**config)
    engine.add(RayReport(checkpoint, preemption=Events.ITERATION_COMPLETED(every=50)))
    engine.run(loader, max_epochs=config["max_epochs"])


def build(directory: str, lr: float, max_epochs: int) -> tuple[Any, Any, Any]:
    """The engine of this rank, its data and its checkpoints."""
    import torch
    from digits import build_model, load_data  # type: ignore[import-not-found]  # beside this file
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torchmetrics.classification import MulticlassAccuracy

    from camshaft import supervised
    from camshaft.handlers import Checkpoint, JSONLines, Metrics, Validate, best, latest

    torch.manual_seed(0)
    train_loader, val_loader, _ = load_data(batch_size=32)
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    checkpoint = Checkpoint(
        directory, keep=latest(2) | best(1, "val/accuracy", mode="max"), resume=True
    )
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    engine.add(
        Metrics({"accuracy": MulticlassAccuracy(10, average="micro")}),
        Validate(val_loader, name="val"),
        JSONLines(Path(directory) / "rows.jsonl"),
        checkpoint,
    )
    return engine, train_loader, checkpoint


def main(arguments: Sequence[str] | None = None) -> ray.train.Result:
    """Train on a local cluster, or on one that runs already."""
    parser = argparse.ArgumentParser(description="The digits example on workers of Ray Train.")
    parser.add_argument("--directory", type=Path, default=Path("runs/ray"))
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="or least and most")
    parser.add_argument("--max-epochs", type=int, default=10)
    parser.add_argument("--max-failures", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--address", help="of a cluster; by default a local one is started")
    options = parser.parse_args(arguments)

    local: dict[str, Any] = {}
    if options.address is None:
        local = RESOURCES | {"num_cpus": options.workers[-1]}
    ray.init(options.address or "local", log_to_driver=False, **local)
    directory = options.directory.absolute()  # on several machines: a folder that all of them see
    one, *most = options.workers
    workers: Any = (one, *most) if most else one  # elastic, or as many
    trainer = TorchTrainer(
        train,
        train_loop_config={
            "directory": str(directory / "digits" / "run"),
            "lr": options.lr,
            "max_epochs": options.max_epochs,
        },
        scaling_config=ray.train.ScalingConfig(num_workers=workers),
        run_config=ray.train.RunConfig(
            name="digits",
            storage_path=str(directory),
            failure_config=ray.train.FailureConfig(max_failures=options.max_failures),
            checkpoint_config=ray.train.CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="val/accuracy"
            ),
        ),
    )
    result = trainer.fit()
    assert result.metrics is not None
    print(f"after {result.metrics['epoch']} epochs: {result.metrics['val/accuracy']:.2%}")
    print(f"checkpoint: {result.checkpoint}")
    return result


if __name__ == "__main__":
    main()
