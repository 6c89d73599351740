"""What a LightningModule logs, on its way to the metrics, and what else its run remembers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ....engine import first_length, metric_states, ranks
from ....engine.state import under_way
from .trainer import TrainerView

Logged = dict[str, tuple[str, bool, Any, int]]
"""By name: the reduction, whether steps log it too, the result so far, and the samples."""
METRIC = "metric"
REDUCE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": torch.add,
    "sum": torch.add,
    "min": torch.minimum,
    "max": torch.maximum,
}


class Carried:
    """Values logged in this epoch, states of torchmetrics, and gradients of manual optimisation.

    Values are reduced by the operations of Lightning, so they are equal to its own to the last bit.
    On several ranks they are over all of them, as with Lightning's `sync_dist=True`.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.logged: Logged = {}
        self._made = metric_states.plain_states(module)

    def add(self, name: str, value: Any, reduce: str, samples: int = 0, *, both: bool) -> None:
        """Take a value of a batch, or a metric, which is computed when the epoch ends."""
        before, _, total, count = self.logged.get(name, (reduce, both, None, 0))
        if before != reduce:
            raise ValueError(f"log({name!r}) was called with reduce_fx={before!r} before")
        if reduce != METRIC:
            value = value if value.dtype in (torch.float32, torch.float64) else value.float()
            value = value * samples if reduce == "mean" else value
            value = value if total is None else REDUCE[reduce](total, value)
        elif total is not value and all(each is not value for each in self.module.modules()):
            raise ValueError(
                f"log({name!r}) got a {type(value).__name__} that is no part of the module; make "
                "it an attribute of the module in __init__"
            )
        self.logged[name] = reduce, both, value, count + samples

    def results(self, known: Logged | None = None) -> dict[str, Any]:
        """The logged values, except `known` ones, reduced over the epoch and over the ranks."""
        known, found = known or {}, {}
        fresh = {name: each for name, each in self.logged.items() if each is not known.get(name)}
        for name, (reduce, both, value, samples) in _over_ranks(fresh).items():
            if reduce == METRIC:
                found[name] = value.compute()
            else:
                count = torch.tensor(samples, device=value.device)
                found[name] = value / count if reduce == "mean" else value
            if both:
                found[f"{name}_epoch"] = found[name]
        return found

    def reset(self) -> None:
        """Begin a new epoch; metrics that were logged begin anew, as Lightning does it."""
        for reduce, _, value, _ in self.logged.values():
            if reduce == METRIC:
                value.reset()
        self.logged = {}

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs in the middle of an epoch."""
        places = {id(each): place for place, each in self.module.named_modules()}
        gradients = {name: each.grad for name, each in self.module.named_parameters()}
        return {
            "logged": {
                name: [reduce, both, places[id(value)] if reduce == METRIC else value, samples]
                for name, (reduce, both, value, samples) in self.logged.items()
            },
            "states": metric_states.accumulated(self.module, self._made),
            "gradients": {}
            if self.module.automatic_optimization  # an Update knows its own
            else {name: each for name, each in gradients.items() if each is not None},
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was saved."""
        module = self.module
        metric_states.put_back_metric(module, saved["states"])
        self.logged = {
            name: (reduce, both, module.get_submodule(it) if reduce == METRIC else it, samples)
            for name, (reduce, both, it, samples) in saved["logged"].items()
        }
        for name, gradient in saved["gradients"].items():
            parameter = module.get_parameter(name)
            parameter.grad = gradient.to(parameter.device)


def _over_ranks(logged: Logged) -> Logged:
    """The same results over all ranks, in one message; metrics synchronise themselves."""
    if not ranks.is_distributed():
        return logged
    found = {name: each for name, each in logged.items() if each[0] == METRIC}
    own = {
        name: (reduce, both, value.cpu(), samples)
        for name, (reduce, both, value, samples) in logged.items()
        if reduce != METRIC
    }
    for rank in ranks.gathered(own, group=ranks.data_group()):
        for name, (reduce, both, value, samples) in rank.items():
            _, _, total, count = found.get(name, (reduce, both, None, 0))
            reduced = value if total is None else REDUCE[reduce](total, value)
            found[name] = reduce, both, reduced, count + samples
    return found


def log(
    trainer: TrainerView,
    name: str,
    value: Any,
    prog_bar: bool = False,
    logger: bool | None = None,
    on_step: bool | None = None,
    on_epoch: bool | None = None,
    reduce_fx: Any = "mean",
    enable_graph: bool = False,
    sync_dist: bool = False,
    sync_dist_group: Any = None,
    add_dataloader_idx: bool = True,
    batch_size: int | None = None,
    metric_attribute: str | None = None,
    rank_zero_only: bool = False,
) -> None:
    """Write a value to the metrics of the run: now, and reduced when the epoch ends.

    The `log` of a LightningModule. Other arguments of Lightning's are accepted: what is shown and
    logged is what the engine's handlers show and log, and epoch values are over all ranks.
    """
    if (state := under_way.get()) is None:
        return  # a step that is called outside of a run
    by_batch: bool = state.training and state.in_epoch and state.iteration_in_epoch > 0
    on_step = by_batch if on_step is None else on_step
    on_epoch = not by_batch if on_epoch is None else on_epoch
    if not on_epoch and not (on_step and by_batch):
        raise ValueError(
            f"log({name!r}, on_step={on_step}, on_epoch={on_epoch}): values of single batches "
            "are kept in training alone; use on_epoch=True"
        )
    is_metric = hasattr(value, "update_count")
    if not is_metric:
        value = _number(name, value, trainer.lightning_module.device)
    now = value._forward_cache if is_metric else value
    if on_step and by_batch and now is not None:
        state.metrics[name] = now
        if on_epoch:
            state.metrics[f"{name}_step"] = now
    if not on_epoch:
        return
    carried = trainer.recall(state)
    if is_metric:
        carried.add(name, value, METRIC, both=on_step)
        return
    reduce = getattr(reduce_fx, "__name__", str(reduce_fx)).lower().replace("avg", "mean")
    if reduce not in REDUCE:
        raise ValueError(
            f"log({name!r}, reduce_fx={reduce_fx!r}): needs one of {', '.join(REDUCE)}; for "
            "another reduction log a metric of torchmetrics"
        )
    in_batch = by_batch or not state.training
    samples = batch_size or (in_batch and first_length(state.batch)) or 1
    carried.add(name, value, reduce, int(samples), both=on_step)


def _number(name: str, value: Any, device: torch.device) -> Tensor:
    """A copy of the number, which later changes of the tensor do not affect."""
    if isinstance(value, Mapping):
        raise ValueError(f"log({name!r}) got a dictionary; use log_dict")
    if not isinstance(value, Tensor):
        return torch.tensor(value, dtype=torch.get_default_dtype(), device=device).reshape(())
    if value.numel() != 1:
        raise ValueError(
            f"log({name!r}) got a tensor of shape {tuple(value.shape)}; it needs one number, such "
            "as its mean()"
        )
    return value.detach().clone().reshape(())
