"""What a LightningModule logs, on its way to the metrics of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..means import first_length
from ..state import State, under_way
from .carried import REDUCE, Carried


class Log:
    """The `log` and `log_dict` of a LightningModule."""

    def __init__(self, module: Any, recall: Callable[[State[Any, Any]], Carried]) -> None:
        self._module = module
        self._recall = recall

    def __deepcopy__(self, memo: object) -> Log:
        """A copy of the module, as for an average of its weights, logs to the same run."""
        return self

    def log(
        self,
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

        Other arguments of Lightning's are accepted: what is shown and logged is what the engine's
        handlers show and log, and epoch values are over all ranks.
        """
        if (state := under_way.get()) is None:
            return  # a step that is called outside of a run
        by_batch: bool = state.training and state.control.in_epoch and state.iteration_in_epoch > 0
        on_step = by_batch if on_step is None else on_step
        on_epoch = not by_batch if on_epoch is None else on_epoch
        if not on_epoch and not (on_step and by_batch):
            raise ValueError(
                f"log({name!r}, on_step={on_step}, on_epoch={on_epoch}): values of single batches "
                "are kept in training alone; use on_epoch=True"
            )
        is_metric = hasattr(value, "update_count")
        if not is_metric:
            value = _number(name, value, self._module)
        if on_step and by_batch:
            now = value._forward_cache if is_metric else value.detach().clone()
            if now is not None:
                state.metrics[name] = now
                if on_epoch:
                    state.metrics[f"{name}_step"] = now
        if not on_epoch:
            return
        carried = self._recall(state)
        if is_metric:
            carried.add_metric(name, value, both=on_step)
            return
        reduce = getattr(reduce_fx, "__name__", str(reduce_fx)).lower().replace("avg", "mean")
        if reduce not in REDUCE:
            raise ValueError(
                f"log({name!r}, reduce_fx={reduce_fx!r}): needs one of {', '.join(REDUCE)}; for "
                "another reduction log a metric of torchmetrics"
            )
        samples = (
            batch_size or ((by_batch or not state.training) and first_length(state.batch)) or 1
        )
        carried.add(name, value.detach(), reduce, int(samples), both=on_step)

    def log_dict(self, dictionary: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        """Log several values, or a collection of metrics."""
        items = dictionary.items()
        if isinstance(dictionary, Module):  # a MetricCollection
            items = dictionary.items(keep_base=False, copy_state=False)  # type: ignore[call-arg]
        for name, value in items:
            self.log(name, value, *args, **kwargs)


def _number(name: str, given: Any, module: Any) -> Tensor:
    if isinstance(given, Tensor):
        value = given
    else:
        if isinstance(given, Mapping):
            raise ValueError(f"log({name!r}) got a dictionary; use log_dict")
        value = torch.tensor(given, dtype=torch.get_default_dtype(), device=module.device)
    if value.numel() != 1:
        raise ValueError(
            f"log({name!r}) got a tensor of shape {tuple(value.shape)}; it needs one number, such "
            "as its mean()"
        )
    return value.reshape(())
