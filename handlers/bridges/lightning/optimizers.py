"""What `configure_optimizers` returns: optimizers and schedulers, in each of its forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau


@dataclass(eq=False)
class SchedulerConfig:
    """A scheduler, and when it is stepped: Lightning's dictionary of a scheduler, with its keys."""

    scheduler: Any
    name: str | None = None
    interval: str = "epoch"
    frequency: int = 1
    reduce_on_plateau: bool | None = None
    monitor: str | None = None
    strict: bool = True

    def __post_init__(self) -> None:
        if self.reduce_on_plateau is None:
            self.reduce_on_plateau = isinstance(self.scheduler, ReduceLROnPlateau)

    def is_due(self, interval: str, count: int) -> bool:
        """True if it is stepped after this many batches of the epoch, or epochs."""
        return self.interval == interval and count % self.frequency == 0

    def step(self, module: Any, metrics: Mapping[str, Any]) -> None:
        """Step it as the module says."""
        if not self.reduce_on_plateau:
            module.lr_scheduler_step(self.scheduler, None)
        elif self.strict or self.monitor in metrics:
            module.lr_scheduler_step(self.scheduler, metrics[str(self.monitor)])

    def check(self, optimizers: Iterable[Optimizer]) -> None:
        """Refuse what could not be stepped in a run; not for the schedulers that a module steps."""
        kind = type(self.scheduler).__name__
        if self.interval not in ("step", "epoch") or self.frequency < 1:
            raise ValueError(
                f"configure_optimizers: {kind} has interval={self.interval!r} and "
                f"frequency={self.frequency!r}; it needs 'step' or 'epoch', and a number from 1"
            )
        if self.reduce_on_plateau and self.monitor is None:
            raise ValueError(
                f"configure_optimizers: {kind} needs a metric to look at, as in "
                '{"scheduler": scheduler, "monitor": "val_loss"}'
            )
        if self.reduce_on_plateau and self.interval == "step":
            raise ValueError(
                f"configure_optimizers: {kind} with interval='step' is not taken; leave it out, or "
                "return the optimizer alone and engine.add(LRSchedule(scheduler, metric=..., "
                "when=...))"
            )
        own = getattr(self.scheduler, "optimizer", None)
        if own is not None and all(own is not each for each in optimizers):
            raise ValueError(
                f"configure_optimizers: {kind} moves the rates of an optimizer that is not "
                "returned; return both"
            )


def configured(module: Module) -> tuple[list[Optimizer], list[SchedulerConfig]]:
    """The optimizers and schedules of a module."""
    made: Any = module.configure_optimizers()  # type: ignore[operator]  # LightningModule has it
    optimizers: list[Any] = []
    schedulers: list[Any] = []
    if isinstance(made, Optimizer):
        optimizers = [made]
    elif isinstance(made, list | tuple) and len(made) == 2 and isinstance(made[0], list | tuple):
        optimizers = list(made[0])
        schedulers = list(made[1]) if isinstance(made[1], list | tuple) else [made[1]]
    elif isinstance(made, list | tuple | Mapping):
        parts = [made] if isinstance(made, Mapping) else list(made)
        dicts = [each if isinstance(each, Mapping) else {"optimizer": each} for each in parts]
        optimizers = [each.get("optimizer") for each in dicts]
        for each in dicts:
            if (given := each.get("lr_scheduler")) is not None:
                inner = given if isinstance(given, Mapping) else {"scheduler": given}
                beside = {"monitor": each["monitor"]} if "monitor" in each else {}
                schedulers.append({**beside, **inner})
    if not optimizers or not all(isinstance(each, Optimizer) for each in optimizers):
        raise TypeError(
            f"configure_optimizers returned {made!r}; it needs an optimizer, several, "
            "([optimizer], [scheduler]), or {'optimizer': ..., 'lr_scheduler': ...}"
        )
    return optimizers, [_schedule(each) for each in schedulers]


def _schedule(given: Any) -> SchedulerConfig:
    if not isinstance(given, Mapping):
        return SchedulerConfig(given)
    known = {field.name for field in fields(SchedulerConfig)}
    unknown = given.keys() - known
    if unknown or "scheduler" not in given:
        wrong = f"has no key {sorted(unknown)}" if unknown else "needs a 'scheduler'"
        raise ValueError(
            f"configure_optimizers: the dictionary of a scheduler {wrong}; its keys are "
            f"{', '.join(sorted(known))}"
        )
    return SchedulerConfig(**given)
