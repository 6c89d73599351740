"""What a run of a LightningModule carries from batch to batch, besides its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from .. import metric_states, ranks

REDUCE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": torch.add,
    "sum": torch.add,
    "min": torch.minimum,
    "max": torch.maximum,
}


class Carried:
    """Values logged in this epoch, states of torchmetrics, and gradients that wait for a step.

    And what hooks have frozen, thawed, or put into another mode, such as `on_train_epoch_start`,
    which a run that is resumed in mid-epoch does not call again.

    Values are reduced by the operations of Lightning, so they are equal to its own to the last bit.
    On several ranks they are over all of them, as with Lightning's `sync_dist=True`.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.sums: dict[str, tuple[str, Tensor, Tensor]] = {}
        """By name: how values are reduced, the result so far, and the number of samples."""
        self.metrics: dict[str, str] = {}
        """By name: the metric of torchmetrics that was logged, as its place in the module."""
        self.both: dict[str, bool] = {}
        """By name: True for what is logged for each step, too."""
        self.pending: set[str] = set()
        """The parameters whose gradients are not used up, by name."""
        self._made = metric_states.plain(module)
        self._flags = self._read_flags()

    def add(self, name: str, value: Tensor, reduce: str, samples: int, *, both: bool) -> None:
        """Take a value of a batch."""
        self.both[name] = both
        value = value if value.dtype in (torch.float32, torch.float64) else value.float()
        if reduce == "mean":
            value = value * samples
        if name in self.sums:
            before, total, count = self.sums[name]
            if before != reduce:
                raise ValueError(f"log({name!r}) was called with reduce_fx={before!r} before")
            value, samples = REDUCE[reduce](total, value), int(count) + samples
        elif reduce in ("mean", "sum"):
            value = torch.zeros((), dtype=torch.float32, device=value.device) + value
        self.sums[name] = reduce, value, torch.tensor(samples)

    def add_metric(self, name: str, metric: Module, *, both: bool) -> None:
        """Note a metric that was logged; it is computed when the epoch ends."""
        found = (place for place, each in self.module.named_modules() if each is metric)
        if (place := next(found, None)) is None:
            raise ValueError(
                f"log({name!r}) got a {type(metric).__name__} that is no part of the module; make "
                "it an attribute of the module in __init__"
            )
        self.both[name], self.metrics[name] = both, place

    def results(self) -> dict[str, Any]:
        """What was logged, reduced over the epoch and over the ranks."""
        sums = self.sums
        if ranks.is_distributed():
            sums = _over_ranks(sums)
        found: dict[str, Any] = {
            name: total / count if reduce == "mean" else total
            for name, (reduce, total, count) in sums.items()
        }
        for name, place in self.metrics.items():
            found[name] = self.module.get_submodule(place).compute()  # type: ignore[operator]
        forked = {f"{name}_epoch": value for name, value in found.items() if self.both[name]}
        return found | forked

    def reset(self) -> None:
        """Begin a new epoch; metrics that were logged begin anew, as Lightning does it."""
        for place in dict.fromkeys(self.metrics.values()):
            self.module.get_submodule(place).reset()  # type: ignore[operator]
        self.sums, self.metrics, self.both = {}, {}, {}

    def note_backward(self) -> None:
        """Note the parameters that a backward pass gave gradients."""
        self.pending |= {name for name, each in self._parameters() if each.requires_grad}

    def note_step(self, parameters: Iterable[Tensor]) -> None:
        """Note that gradients were used, or cleared."""
        used = {id(each) for each in parameters}
        self.pending -= {name for name, each in self._parameters() if id(each) in used}

    def _read_flags(self) -> dict[str, bool]:
        """Which parameters learn, and which parts are in training mode."""
        learning = {f"{name} learns": each.requires_grad for name, each in self._parameters()}
        modes = {f"{name} trains": each.training for name, each in self.module.named_modules()}
        return learning | modes

    def _write_flags(self, flags: Mapping[str, bool]) -> None:
        for name, each in self._parameters():
            each.requires_grad = flags.get(f"{name} learns", each.requires_grad)
        for name, part in self.module.named_modules():
            part.training = flags.get(f"{name} trains", part.training)

    def _parameters(self) -> Iterable[tuple[str, Parameter]]:
        return self.module.named_parameters()

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs in the middle of an epoch."""
        gradients = {
            name: each.grad
            for name, each in self._parameters()
            if name in self.pending and each.grad is not None
        }
        return {
            "sums": {name: list(each) for name, each in self.sums.items()},
            "metrics": dict(self.metrics),
            "both": dict(self.both),
            "states": metric_states.accumulated(self.module, self._made),
            "gradients": gradients,
            "flags": dict(self._read_flags().items() - self._flags.items()),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was saved."""
        self.sums = {name: tuple(each) for name, each in saved["sums"].items()}
        self.metrics, self.both = dict(saved["metrics"]), dict(saved["both"])
        metric_states.put_back(self.module, saved["states"])
        self._write_flags(saved["flags"])
        self.pending = set(saved["gradients"])
        for name, each in self._parameters():
            if name in self.pending:
                each.grad = saved["gradients"][name].to(each.device)


def _over_ranks(
    sums: Mapping[str, tuple[str, Tensor, Tensor]],
) -> dict[str, tuple[str, Tensor, Tensor]]:
    """The same over all ranks, by one message."""
    found: dict[str, tuple[str, Tensor, Tensor]] = {}
    own = {name: (reduce, total.cpu(), count) for name, (reduce, total, count) in sums.items()}
    for each in ranks.gathered(own, group=ranks.data_group()):
        for name, (reduce, total, count) in each.items():
            _, before, counted = found.get(name, (reduce, None, 0))
            both = total if before is None else REDUCE[reduce](before, total)
            found[name] = reduce, both, count + counted
    return found
