"""Pipeline parallelism: each rank holds some layers, and the parts of a batch flow through them.

torch's schedules (GPipe, 1F1B) send activations and gradients from rank to rank. Each rank runs an
engine of its own layers, with its own optimizer and checkpoints, inside `ranks.alone()`. The norm
of the gradients is that of all ranks together. Kill it and start it again: all ranks continue from
the newest iteration that each of them has saved.

    torchrun --nproc-per-node=2 examples/pipeline.py
    torchrun --nproc-per-node=4 examples/pipeline.py --schedule GPipe
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.utils.data import TensorDataset

from camshaft import Engine, Events, State, Update, loader, ranks
from camshaft.handlers import Checkpoint, JSONLines, latest
from camshaft.handlers.checkpoint import checkpoints

SCHEDULES = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}
LAYERS, WIDTH, BATCH, PARTS, MAX_NORM = 8, 64, 32, 4, 1.0


def layers() -> list[nn.Module]:
    """All layers of the model, the same on each rank."""
    torch.manual_seed(0)
    hidden = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS - 1)]
    return [*hidden, nn.Linear(WIDTH, 10)]


def data(count: int = 1600) -> TensorDataset:
    """scikit-learn's digits."""
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images[:count]).float() / 16, torch.tensor(labels[:count]))


def newest_of_all(directory: Path) -> Path | None:
    """This rank's checkpoint of the newest iteration that all ranks have; None for a new run.

    A run that is killed in its first save may leave a checkpoint on some ranks, and none on others.
    """
    own = {each.manifest.iteration: each.path for each in checkpoints(directory)}
    found = ranks.gathered([*own])
    if common := set.intersection(*map(set, found)):
        return own[max(common)]
    if max(map(len, found)) > 1 or all(found):
        raise ValueError(f"no iteration is saved on all ranks in {directory.parent}: {found}")
    return None


def share_of_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The share of one of the parts in the mean loss of a batch."""
    return nn.functional.cross_entropy(scores, labels) / PARTS


def stage_engine(schedule: str) -> Engine[Any, Tensor]:
    """An engine that trains this rank's layers, together with the other ranks."""
    rank, count = ranks.rank(), ranks.world_size()
    if LAYERS % count:
        raise SystemExit(f"{LAYERS} layers cannot be divided among {count} ranks")
    every, share = layers(), LAYERS // count
    model = nn.Sequential(*every[rank * share : (rank + 1) * share])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    update = Update(optimizer)
    stage = PipelineStage(model, rank, count, torch.device("cpu"))
    # With scale_grads, each call would divide the gradients of the calls before it, too.
    pipeline = SCHEDULES[schedule](stage, PARTS, loss_fn=share_of_loss, scale_grads=False)

    def step(state: State[Any, Any], batch: Sequence[Tensor]) -> Tensor:
        images, labels = batch
        losses: list[Tensor] = []
        with update.micro_batch(state) as micro:
            if update not in state.step_under_way.windows:
                update.open(state)  # the schedule calls the backward passes itself
            pipeline.step(
                *([images] if rank == 0 else []),
                target=labels if rank == count - 1 else None,
                losses=losses,
            )
            loss = torch.stack(losses).sum().detach() if losses else torch.zeros(())
            dist.broadcast(loss, count - 1)
            micro.count(loss)
        state.metrics["loss"] = loss
        return loss

    engine: Engine[Any, Tensor] = Engine(
        step, update, objects={"model": model, "optimizer": optimizer}
    )

    @engine.on(Events.BACKWARD_COMPLETED)
    def clip(state: State[Any, Any]) -> None:
        """Clip by the norm over all ranks, or make no step; each knows its own layers only."""
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        squares = torch.stack([each.square().sum() for each in gradients]).sum()
        dist.all_reduce(squares)
        norm = squares.sqrt()
        if not norm.isfinite():  # the same on all ranks
            state.skip_step()
        nn.utils.clip_grads_with_norm_(model.parameters(), MAX_NORM, norm)
        state.metrics["grad_norm"] = norm

    return engine


def main(arguments: Sequence[str] | None = None) -> State[Any, Any]:
    """Train on the ranks of the launcher."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("runs/pipeline"))
    parser.add_argument("--schedule", choices=SCHEDULES, default="1F1B")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=1600)
    options = parser.parse_args(arguments)
    with ranks.process_group("gloo"):
        rank, count = ranks.rank(), ranks.world_size()
        directory = options.directory / f"stage-{rank}-of-{count}"
        others = ranks.gathered(sorted(map(str, options.directory.glob("stage-*-of-*"))))
        if odd := [each for each in others[0] if not each.endswith(f"-of-{count}")]:
            raise SystemExit(f"{odd[0]} is of another number of ranks: its layers lie elsewhere")
        engine = stage_engine(options.schedule)
        when = Events.ITERATION_COMPLETED(every=20)
        resume = newest_of_all(directory)
        # A rank may be a save ahead of another one, whose last one is still being written.
        anew = resume is None
        engine.add(Checkpoint(directory, when=when, keep=latest(3), resume=resume, start_over=anew))
        if rank == 0:
            engine.add(JSONLines(options.directory / "rows.jsonl"))
        with ranks.alone():  # each rank sends by itself, and saves by itself
            # torch's schedules take batches of one size.
            batches = loader(data(options.samples), BATCH, training=True, seed=1, drop_last=True)
            state = engine.run(batches, max_epochs=options.epochs)
        if rank == 0:
            print(f"loss {float(state.metrics['loss']):.4f} after {state.iteration} iterations")
    return state


if __name__ == "__main__":
    main()
