"""Training steps: each case a loop written by hand, and an engine that does the same."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from models import GPT, Sizes, convolutions, mlp, next_tokens
from tensorboardX import SummaryWriter
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import get_ema_multi_avg_fn

from camshaft import Engine, Events, supervised
from camshaft.handlers import (
    EMA,
    Average,
    ClipGradNorm,
    LRSchedule,
    NonFiniteGuard,
    TensorBoard,
    Throughput,
)

LOGGED = 50
LONG = 10**6
"""Steps of a schedule that never ends here."""


@dataclass
class Case:
    """What is trained; `raw` and `engine` each make it anew."""

    name: str
    device: torch.device
    model: Callable[[], nn.Module]
    loss_fn: Callable[[Tensor, Tensor], Tensor]
    batches: list[tuple[Tensor, Tensor]]
    steps: int
    most: float | None = None
    """The goal: the largest ratio of the engine's time to the raw loop's."""
    precision: str = "fp32"
    optimizer: type[torch.optim.Optimizer] = torch.optim.SGD
    everything: Path | None = None
    """Where to log, with everything on."""
    compile: dict[str, str] | None = None

    def made(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = self.model().to(self.device)
        fused: Any = True if self.optimizer is torch.optim.AdamW else None
        make: Any = self.optimizer
        return model, make(model.parameters(), lr=1e-3, fused=fused)

    def raw(self) -> Callable[[Any], None]:
        """One step of the loop that people write."""
        model, optimizer = self.made()
        device, loss_fn = self.device, self.loss_fn
        after = self.rest(model, optimizer) if self.everything else None
        bf16 = torch.autocast(device.type, torch.bfloat16)
        context: Any = bf16 if self.precision == "bf16" else nullcontext()

        def step(batch: tuple[Tensor, Tensor]) -> None:
            input, target = (each.to(device, non_blocking=True) for each in batch)
            optimizer.zero_grad()
            with context:
                loss = loss_fn(model(input), target)
            loss.backward()
            if after is None:
                optimizer.step()
            else:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                after(loss.detach())

        return step

    def rest(self, model: nn.Module, optimizer: Any) -> Callable[[Tensor], None]:
        """What the raw loop does after a step, with everything on."""
        schedule = CosineAnnealingLR(optimizer, LONG)
        fold: Any = get_ema_multi_avg_fn(0.999)
        weights = list(model.parameters())
        averages = [each.detach().clone() for each in weights]
        writer, count = SummaryWriter(str(self.everything / "raw" if self.everything else "")), 0
        mean = torch.zeros((), device=self.device)

        def after(loss: Tensor) -> None:
            nonlocal count
            schedule.step()
            with torch.no_grad():  # as AveragedModel does, which waits for the device
                fold(averages, weights, 0)
            mean.lerp_(loss.float(), 0.02)
            count += 1
            if count % LOGGED == 0:
                writer.add_scalar("loss", loss.item(), count)
                writer.add_scalar("mean", mean.item(), count)
                writer.add_scalar("lr", optimizer.param_groups[0]["lr"], count)

        return after

    def engine(self) -> Engine[Any, Any]:
        """The same as an engine."""
        model, optimizer = self.made()
        options: dict[str, Any] = {} if self.compile is None else {"compile": self.compile}
        engine = supervised(
            model, optimizer, self.loss_fn, device=self.device, precision=self.precision, **options
        )
        if self.everything:
            logged = Events.ITERATION_COMPLETED(every=LOGGED)
            engine.add(
                *(ClipGradNorm(1.0), LRSchedule(CosineAnnealingLR(optimizer, LONG)), EMA(0.999)),
                *(NonFiniteGuard("raise"), Average("loss", decay=0.98), Throughput(when=logged)),
                TensorBoard(self.everything / "engine", when=logged),
            )
        return engine


def cases(sizes: Sizes, device: torch.device, directory: Path) -> Iterator[Case]:
    """All cases, one after the other."""
    small: dict[str, Any] = {
        **{"device": device, "model": mlp, "loss_fn": cross_entropy, "steps": sizes.steps},
        "batches": pairs(device, lambda: torch.randn(32, 256), lambda: torch.randint(10, (32,))),
    }
    yield Case("small step", **small)
    replayed = {"mode": "reduce-overhead"}  # as CUDA graphs
    yield Case("small step, compiled and replayed", most=0.5, compile=replayed, **small)
    everything: dict[str, Any] = {"optimizer": torch.optim.AdamW, "everything": directory / "small"}
    yield Case("small step, everything on", **small, **everything)

    def text() -> Tensor:
        return torch.randint(sizes.vocabulary, (sizes.texts, sizes.length))

    gpt: dict[str, Any] = {
        **{"device": device, "model": lambda: GPT(sizes), "loss_fn": next_tokens},
        **{"steps": sizes.gpt_steps, "precision": "bf16", "optimizer": torch.optim.AdamW},
        **{"batches": pairs(device, text, text), "most": 1 / 0.995},
    }
    yield Case("GPT of 124 million, bf16", **gpt)
    yield Case("GPT, everything on", **gpt, everything=directory / "gpt")
    yield Case(
        "large batches (`Transfer`)",
        **{"device": device, "model": convolutions, "loss_fn": cross_entropy},
        batches=pairs(
            device,
            lambda: torch.randn(sizes.images, 3, sizes.pixels, sizes.pixels),
            lambda: torch.randint(10, (sizes.images,)),
        ),
        **{"steps": sizes.image_steps, "precision": "bf16"},
    )


def pairs(
    device: torch.device, input: Callable[[], Tensor], target: Callable[[], Tensor], count: int = 4
) -> list[tuple[Tensor, Tensor]]:
    """Batches as a loader with pinned memory gives them."""
    torch.manual_seed(1)
    made = [(input(), target()) for _ in range(count)]
    if device.type != "cuda":
        return made
    return [(one.pin_memory(), other.pin_memory()) for one, other in made]


def each(step: Callable[[Any], None]) -> Callable[[Iterable[Any]], None]:
    """A loop of these steps."""

    def loop(batches: Iterable[Any]) -> None:
        for batch in batches:
            step(batch)

    return loop
