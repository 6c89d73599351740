"""What a LightningModule logs, on its way to the metrics of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....engine import first_length
from ....engine.state import under_way
from .carried import METRIC, REDUCE
from .trainer import TrainerView


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
    """A number of its own, so that it stays when the module goes on with the tensor."""
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
