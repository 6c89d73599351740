"""What a step of an engine costs on two ranks, as a ratio to a loop by hand that does the same.

`python tests/benchmarks/ranks.py` trains a small MLP by DDP and by FSDP2 over gloo, plain and with
everything on. On each rank the loop and the engine take turns, pass by pass; a figure is the median
of the ratios of the CPU time of a process, and the larger one of the two ranks.
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from replicas import forked
from tensorboardX import SummaryWriter
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import get_ema_multi_avg_fn

sys.path.append(str(Path(__file__).parent / "gpu"))
from models import mlp
from turns import Turns

from camshaft import Engine, Events, ranks, supervised
from camshaft.handlers import (
    EMA,
    Average,
    ClipGradNorm,
    LRSchedule,
    NonFiniteGuard,
    TensorBoard,
    Throughput,
)

LOGGED, LONG, STEPS, TURNS = 50, 10**6, 50, 11
WAYS: dict[str, dict[str, Any]] = {"DDP": {}, "FSDP2": {"shard": nn.Linear}}
Batch = tuple[Tensor, Tensor]


class CpuClock:
    """The CPU seconds of all threads of this process."""

    def begin(self) -> None:
        self.began = time.process_time()

    def end(self) -> float:
        return time.process_time() - self.began


def made(way: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model on this rank, and its optimizer."""
    torch.manual_seed(0)
    model = ranks.prepare(mlp(), device="cpu", **WAYS[way])
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def by_hand(way: str, folder: Path | None) -> Callable[[Batch], None]:
    """One step of the loop that people write; with a folder, with everything on."""
    model, optimizer = made(way)
    weights = list(model.parameters())
    schedule, fold = CosineAnnealingLR(optimizer, LONG), get_ema_multi_avg_fn(0.999)
    averages = [each.detach().clone() for each in weights]
    writer = SummaryWriter(str(folder / "hand")) if folder and ranks.rank() == 0 else None
    mean, count, began = torch.zeros(()), 0, time.perf_counter()

    def step(batch: Batch) -> None:
        nonlocal count, began
        loss = cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        if folder is None:
            optimizer.step()
            optimizer.zero_grad()
            return
        norm: Any = nn.utils.clip_grad_norm_(weights, 1.0)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        if not math.isfinite(norm):
            raise FloatingPointError(f"a norm of {norm}")
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        with torch.no_grad():
            fold(averages, weights, 0)
        mean.lerp_(loss.detach(), 0.02)
        count += 1
        if count % LOGGED == 0:
            both = torch.stack([mean, loss.detach()])
            torch.distributed.all_reduce(both)
            if writer:
                both = both.div_(ranks.world_size()).tolist()
                writer.add_scalar("mean", both[0], count)
                writer.add_scalar("loss", both[1], count)
                writer.add_scalar("lr", optimizer.param_groups[0]["lr"], count)
                writer.add_scalar("pace", LOGGED / (time.perf_counter() - began), count)
            began = time.perf_counter()

    return step


def engine_of(way: str, folder: Path | None) -> Engine[Any, Any]:
    """The same as an engine."""
    model, optimizer = made(way)
    engine = supervised(model, optimizer, cross_entropy)
    if folder:
        logged = Events.ITERATION_COMPLETED(every=LOGGED)
        engine.add(
            *(ClipGradNorm(1.0), LRSchedule(CosineAnnealingLR(optimizer, LONG)), EMA(0.999)),
            *(NonFiniteGuard("raise"), Average("loss", decay=0.98), Throughput(when=logged)),
            TensorBoard(folder / "engine", when=logged),
        )
    return engine


def ratio(way: str, folder: Path | None) -> float:
    """The engine's time in that of the loop, on this rank."""
    torch.manual_seed(1 + ranks.rank())
    batches = [(torch.randn(32, 256), torch.randint(10, (32,))) for _ in range(4)]
    raw = by_hand(way, folder)
    turns = Turns(batches, STEPS, raw, torch.device("cpu"))
    turns.clock = CpuClock()  # type: ignore[assignment]
    with redirect_stdout(sys.stderr):
        engine_of(way, folder).run(turns, max_epochs=TURNS)
    return median(turns.ratios())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for way in WAYS:
        for what in ("plain", "everything on"):
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder) if what != "plain" else None
                found = [forked(partial(ratio, way, place), 2)() for _ in range(given.rounds)]
            spread = f"{min(found):.2f} to {max(found):.2f}"
            print(f"{way}, {what}: {median(found):.2f} of the loop by hand ({spread})")


if __name__ == "__main__":
    main()
