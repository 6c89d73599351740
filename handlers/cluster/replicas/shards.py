"""A step in shards: a batch is cut, and the process function is called with each piece."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import torch
from torch import Tensor

from ....engine import State, ranks
from ....engine.modules import is_spread, local, locals_of, parameters_of
from ....engine.state import seed_all, seed_of
from ....engine.supervised import Output, map_tensors
from ....engine.update import Update
from .sums import Node, in_a_row

ShardResult = dict[str, Any]
"""What there is to know of a shard besides its gradients, as plain values."""


@dataclass(eq=False)
class ShardedBatch:
    """The pieces of one batch, and what the process function makes of them."""

    update: Update
    process: Callable[[State[Any, Any], Any], Any]
    state: State[Any, Any]
    batch: Any
    edges: list[int]
    """The samples at which the batch is cut."""
    seed: int
    """The random numbers of a shard depend on this, the iteration and the shard alone."""
    letters: dict[int, ShardResult] = field(default_factory=dict[int, ShardResult])

    @classmethod
    def of(
        cls,
        update: Update,
        process: Callable[[State[Any, Any], Any], Any],
        state: State[Any, Any],
        batch: Any,
        most: int,
    ) -> ShardedBatch:
        """Cut a batch into `most` pieces, or into its samples if those are fewer.

        Raises:
            TypeError: It holds something else than tensors with one row for each sample.
        """
        position = state.control.position
        assert position is not None  # the batch is of a pass
        samples = _samples(batch)
        # The ranks of a replica go through the model together, so with equally many shards.
        count = min(most, -ranks.most([-samples])[0])
        edges = [number * samples // count for number in range(count + 1)]
        return cls(update, process, state, batch, edges, position.seed)

    @property
    def count(self) -> int:
        """The number of shards."""
        return len(self.edges) - 1

    @property
    def checksum(self) -> int:
        """The checksum of three samples, which replicas compare: they have to read the same."""
        rows, sums = [0, self.edges[-1] // 2, self.edges[-1] - 1], list[int]()

        def note(tensor: Tensor) -> Tensor:
            few = tensor[rows].detach().cpu().contiguous().view(-1).view(torch.uint8)
            sums.append(zlib.crc32(few.numpy().tobytes(), sums[-1] if sums else 0))
            return tensor

        map_tensors(self.batch, note)
        return sums[-1] if sums else 0

    def share(self, shard: int) -> float:
        """The part of all samples that is in a shard."""
        return (self.edges[shard + 1] - self.edges[shard]) / self.edges[-1]

    def leaf(self, node: Node) -> Tensor | None:
        """The gradients of one shard, of all parameters in a row; None for several shards."""
        if node[1] - node[0] > 1:
            return None
        shard, state, update = node[0], self.state, self.update
        begin, end = self.edges[shard], self.edges[shard + 1]
        piece = map_tensors(self.batch, lambda tensor: tensor[begin:end])
        number = ranks.data_rank() * self.count + shard  # among the shards of the whole batch
        seed_all(seed_of(self.seed, state.iteration, number))
        window = update.open(state)
        whole, window.is_held = state.share, True
        state.share = whole * self.share(shard)
        metrics = state.metrics.state_dict()
        try:
            output = self.process(state, piece)
        finally:
            state.share = whole
            state.step_under_way.windows.pop(update, None)
        if window.calls != 1:
            raise RuntimeError(
                f"the process function called its Update {window.calls} times for one batch; with "
                "Replicas it does so once: `update(state, loss)`"
            )
        parameters = trained_by(update)
        idle = [n for n, each in enumerate(parameters) if each.grad is None]
        weight = None if window.weight is None else float(window.weight)
        self.letters[shard] = {
            "idle": idle, "weight": weight, "count": window.count,
            "metrics": _numbers(state.metrics.since(metrics["writes"])),
            "samples": _samples_of(output),
        }  # fmt: skip
        state.metrics.load_state_dict(metrics)  # writes count, and others compute other shards
        found = in_a_row([_gradient_of(each) for each in parameters])
        self.clear()
        return found

    def clear(self) -> None:
        """Drop gradients, and let the check of gradients know that this is meant."""
        for each in trained_by(self.update):
            each.grad = None
        if (check := self.state.step_under_way.check) is not None:
            check.leave(self.update)

    def step(self, total: Tensor, letters: dict[int, ShardResult]) -> Output | None:
        """Take the step with the sums over all shards; the output of the whole batch."""
        state, update, rows = self.state, self.update, [letters[i] for i in range(self.count)]
        counted = [each["count"] for each in rows]
        weights = [each["weight"] for each in rows if each["count"]]
        mixed = None in weights and any(each is not None for each in weights)
        if mixed:
            raise ValueError("some shards of a batch have a weight= and some have none")
        is_sum = bool(weights) and weights[0] is not None
        shares = [each["weight"] or 0.0 for each in rows] if is_sum else self._shares(counted)
        self._note_metrics(rows, shares)
        window = update.open(state)
        window.is_held, window.calls, window.count = True, 1, int(any(counted))
        window.weight = sum(shares) if is_sum else None
        _give(trained_by(update), total, set.intersection(*(set(e["idle"]) for e in rows)))
        if (check := state.step_under_way.check) is not None:
            check.leave(update)
        update.close(state)
        if any(each["samples"] is None for each in rows):
            return None
        samples = sum(each["samples"] for each in rows)
        loss = state.metrics["loss"] if any(counted) and "loss" in state.metrics else None
        return Output(loss, None, None, window.weight, samples)

    def _shares(self, counted: list[int]) -> list[float]:
        return [self.share(i) if has_loss else 0.0 for i, has_loss in enumerate(counted)]

    def _note_metrics(self, rows: list[ShardResult], shares: list[float]) -> None:
        """Write the mean of each number that the process function wrote, in order of the shards."""
        metrics = self.state.metrics
        for name in dict.fromkeys(name for each in rows for name in each["metrics"]):
            has = [i for i, each in enumerate(rows) if name in each["metrics"]]
            total = sum(shares[i] for i in has) or 1.0
            mean = sum(rows[i]["metrics"][name] * shares[i] for i in has) / total
            metrics.replace(name, torch.tensor(mean, dtype=torch.float64))


def trained_by(update: Update) -> list[Tensor]:
    """The parameters that an update trains."""
    return [each for each in parameters_of(update.optimizer) if each.requires_grad]


def _gradient_of(parameter: Any) -> Tensor:
    """The gradient of this rank's part of a parameter."""
    if (gradient := parameter.grad) is None:
        return torch.zeros_like(local(parameter))
    if is_spread(gradient) and gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
    return local(gradient)


def _give(parameters: list[Tensor], total: Tensor, idle: set[int]) -> None:
    """Give each parameter its gradient out of the row of all."""
    parts = locals_of(parameters)
    rows = total.clone().split([each.numel() for each in parts])  # handlers change them
    for number, (parameter, part, row) in enumerate(zip(parameters, parts, rows, strict=True)):
        if number not in idle:
            gradient = row.view_as(part).to(part)
            parameter.grad = _like(parameter, gradient) if is_spread(parameter) else gradient


def _like(parameter: Any, part: Tensor) -> Tensor:
    """A tensor that lies on the ranks as a parameter does, of which this rank has this part."""
    form = {"shape": parameter.shape, "stride": parameter.stride()}
    mesh, placements = parameter.device_mesh, parameter.placements
    made: Tensor = type(parameter.data).from_local(part, mesh, placements, run_check=False, **form)
    return made


def _numbers(metrics: dict[str, Any]) -> dict[str, float]:
    """Those metrics that are one number."""
    found = {}
    for name, value in metrics.items():
        if isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1):
            found[name] = float(value)
    return found


def _samples(batch: Any) -> int:
    leaves = list[Any]()
    map_tensors(batch, leaves.append, is_leaf=_is_value)
    lengths = {len(e) if isinstance(e, Tensor) and e.ndim else None for e in leaves}
    if len(lengths) != 1 or None in lengths:
        kinds = sorted({type(each).__name__ for each in leaves})
        raise TypeError(
            "Replicas cuts each batch into shards, along the first dimension of its tensors: it "
            f"needs tensors of one length and nothing else; this batch has {', '.join(kinds)} of "
            f"the lengths {sorted(map(str, lengths))}. Let the loader's collate_fn make such a "
            "batch, or a dict of tensors"
        )
    return int(lengths.pop() or 0)


def _is_value(leaf: Any) -> bool:
    return not (isinstance(leaf, list | tuple | Mapping) or is_dataclass(leaf))


def _samples_of(output: Any) -> int | None:
    if not isinstance(output, Output):
        return None
    target = output.target
    return output.samples or (len(target) if isinstance(target, Tensor) and target.ndim else 1)
