"""Steps with gradients far larger than the latest ones are skipped, or the weights go back."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from ...engine import Engine, Events, Stage, State, ranks
from ...engine.modules import (
    are_spread,
    fits,
    in_place,
    optimizers_in,
    pairs_of,
    parameters_of,
    set_at,
    tensor_at,
    unwrap,
)
from ...engine.state import as_float
from ...engine.update import are_alike, ready_gradients

logger: logging.Logger = logging.getLogger("camshaft")

POLICIES = ("skip", "rewind")
GRAD_NORM = "grad_norm"


@dataclass(frozen=True, eq=False)
class SpikeGuard:
    """Keep batches whose gradients are far larger than the latest ones out of the weights.

    A step is a spike if the norm of its gradients is more than `deviations` standard deviations
    above the mean of the last `window` norms that were none, or if it is not finite. A deviation
    counts as at least a hundredth of the mean. The norm is that of the whole accumulation window,
    averaged over ranks and before clipping; the steps of each optimizer are judged by themselves.
    Each step waits for the norm.

    On several ranks the rule is the same. `DistributedDataParallel` gives all of them the same
    gradients, so they decide alike and send nothing. Sharded models send one message in each
    dimension of their mesh, as clipping does. Others, such as those with a communication hook,
    compare small numbers.

    `metric="loss"` judges the loss of a window's last batch instead, which is the mean over ranks
    and costs a message in each step.

    With `"rewind"`, weights and optimizers also go back by `steps` to `2 * steps` steps, to a copy
    in the host's memory. Clocks, schedules and data go on, so that other batches follow: the remedy
    of PaLM (Chowdhery et al., 2022, section 5.1, [arXiv:2204.02311](https://arxiv.org/abs/2204.02311)).
    There are two copies of what the optimizers train, also in each checkpoint, so that a resumed
    run goes back to the same weights.

    Args:
        policy: `"skip"` discards the step; `"rewind"` discards it and goes back.
        metric: `"grad_norm"`, or a metric that the process function writes before its update.
        deviations: The number of standard deviations.
        window: The number of norms; as many steps at the beginning are not judged.
        steps: With `"rewind"` only, the number of steps from one copy to the next.
        limit: The largest number of spikes in a row; the run fails after one more.

    Raises:
        ValueError: An argument is not among those named here, or not positive.

    >>> SpikeGuard("rewind", steps=500).policy
    'rewind'
    """

    policy: str = "skip"
    _: KW_ONLY
    metric: str = GRAD_NORM
    deviations: float = 6.0
    window: int = 100
    steps: int = 100
    limit: int = 10
    shares_norm: ClassVar[bool] = True
    in_trials: ClassVar[bool] = False
    """It takes no part in `find_lr`, where loss and gradients are meant to grow."""

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"SpikeGuard({self.policy!r}): needs 'skip' or 'rewind'")
        least = {"deviations": 0, "window": 1, "steps": 0, "limit": 0}
        for name, bound in least.items():
            if not getattr(self, name) > bound:
                raise ValueError(
                    f"SpikeGuard({name}={getattr(self, name)!r}): needs a number above {bound}"
                )

        if self.policy != "rewind" and self.steps != type(self).steps:
            raise ValueError(
                f"SpikeGuard({self.policy!r}, steps={self.steps!r}): steps= is the distance of the "
                f"copies that 'rewind' makes, and {self.policy!r} makes none; leave steps= out, or "
                f'write SpikeGuard("rewind", steps={self.steps!r})'
            )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Judge complete gradients; with "rewind", copy what the optimizers train.

        Raises:
            ValueError: The engine knows no optimizer, or the name "rewind" is taken.
        """
        engine.on(Events.BACKWARD_COMPLETED, stage=Stage.MEASURE)(self.judge)
        if self.policy == "rewind":
            if not all(_trained(engine.objects)) or "rewind" in engine.objects:
                raise ValueError(
                    "SpikeGuard('rewind') needs the model and its optimizer among the engine's "
                    'objects, and the name "rewind" free: Engine(..., objects={"model": model, '
                    f'"optimizer": optimizer}}); there are {", ".join(engine.objects) or "none"}'
                )
            engine.objects["rewind"] = Rewind()
            engine.on(Events.STARTED)(self.begin)
            engine.on(Events.STEP_COMPLETED(every=self.steps))(self.copy)
            # After NonFiniteGuard, which puts buffers back to before this step.
            engine.on(Events.STEP_SKIPPED)(self.go_back)

    def judge(self, state: State[Any, Any]) -> None:
        """Skip the step if it is a spike."""
        judged = state.recall(self, JudgedSteps)
        name = _name_of(state.optimizer, state)
        value = self._norm(state) if self.metric == GRAD_NORM else self._metric(state, judged)
        limit = judged.limit(name, self.window, self.deviations)
        if math.isfinite(value) and value <= limit:
            judged.accept(name, value, self.window)
            return
        judged.spikes += 1
        judged.in_a_row[name] = judged.in_a_row.get(name, 0) + 1
        state.metrics["spikes"] = judged.spikes
        if judged.in_a_row[name] > self.limit:
            raise FloatingPointError(self._teach(state, judged.in_a_row[name], value, limit))
        state.skip_step()
        judged.must_go_back = self.policy == "rewind"
        logger.warning(
            "SpikeGuard: the %s of iteration %d is %.4g, above %.4g; its step is skipped",
            *(self._what, state.iteration, value, limit),
        )

    def begin(self, state: State[Any, Any]) -> None:
        """Make the first copy, unless the run is resumed and has one."""
        rewind = state.engine.objects["rewind"]
        if not rewind.copies:
            rewind.copy(state.engine.objects, state.step)

    def copy(self, state: State[Any, Any]) -> None:
        """Copy what the optimizers train."""
        state.engine.objects["rewind"].copy(state.engine.objects, state.step)

    def go_back(self, state: State[Any, Any]) -> None:
        """Put the earlier copy back, if a spike was the reason to skip the step."""
        judged = state.recall(self, JudgedSteps)
        if judged.must_go_back:
            judged.must_go_back = False
            step = state.engine.objects["rewind"].put_back(state.engine.objects)
            if step is None:
                self.copy(state)
                what = "stay: parameters have other shapes than in the copy"
            else:
                what = f"go back to those of step {step}"
            logger.warning("SpikeGuard: the weights %s", what)

    def _norm(self, state: State[Any, Any]) -> float:
        """The norm of the gradients, which is the same on all ranks."""
        gradients = ready_gradients(state, None, "SpikeGuard")
        assert gradients is not None
        value = float(gradients.norm())
        if are_spread(gradients.tensors) or are_alike(state):
            return value
        return float(ranks.total(value)) / ranks.world_size()

    def _metric(self, state: State[Any, Any], judged: JudgedSteps) -> float:
        """The metric that this step has written, as the mean over ranks."""
        if self.metric not in state.metrics.since(judged.write):
            found = ", ".join(state.metrics.since(judged.write)) or "none"
            raise LookupError(
                f"SpikeGuard judges the metric {self.metric!r} of each step, and this step has "
                f"not written it before its update; written are: {found}. In a step of your own, "
                f'state.metrics["{self.metric}"] = loss.detach() goes above update(state, loss)'
            )
        judged.write = state.metrics.writes
        value = state.metrics[self.metric]
        value = value if isinstance(value, Tensor) else as_float(value)
        return float(ranks.total(value)) / ranks.world_size()

    @property
    def norm_type(self) -> float | None:
        """The kind of norm that it reads in each step; None if it judges another metric."""
        return 2.0 if self.metric == GRAD_NORM else None

    @property
    def _what(self) -> str:
        names = {GRAD_NORM: "gradient norm", "loss": "loss"}
        return names.get(self.metric, f"metric {self.metric!r}")

    def _teach(self, state: State[Any, Any], times: int, value: float, limit: float) -> str:
        return (
            f"SpikeGuard: {times} steps in a row have a {self._what} above {limit:.4g}, the last "
            f"one of {value:.4g} in iteration {state.iteration}. Look at the batch in state.batch "
            f"and at the learning rate; if the {self._what} has a new level because the data is "
            "another, pass a larger deviations= or limit="
        )


@dataclass
class JudgedSteps:
    """The findings in the steps so far, by the name of the optimizer."""

    latest: dict[str, list[float]] = field(default_factory=dict)
    """The latest values without the spikes."""
    in_a_row: dict[str, int] = field(default_factory=dict)
    spikes: int = 0
    must_go_back: bool = False
    write: int = 0
    """The last write of a metric that was checked."""

    def limit(self, name: str, window: int, deviations: float) -> float:
        """The largest value that is no spike."""
        latest = self.latest.get(name, ())
        if len(latest) < window:
            return math.inf
        mean = sum(latest) / window
        variance = sum((value - mean) ** 2 for value in latest) / window
        return mean + deviations * max(math.sqrt(variance), abs(mean) / 100)

    def accept(self, name: str, value: float, window: int) -> None:
        """Add a value to the latest ones."""
        self.in_a_row[name] = 0
        # A new list: a checkpoint that is written in the background may still hold the old one.
        self.latest[name] = [*self.latest.get(name, ())[1 - window :], value]


def _name_of(optimizer: Any, state: State[Any, Any]) -> str:
    """The name of an optimizer among the engine's objects; empty if it has none."""
    objects, first = state.engine.objects.items(), optimizers_in(optimizer)[0]
    return next((name for name, each in objects if each is first), "")


class Rewind:
    """The two latest copies of weights and optimizers, in the host's memory; saved with the run.

    A copy has the optimizers' state and not their options: rates belong to schedules, which go on.
    """

    def __init__(self) -> None:
        self.copies: list[dict[str, Any]] = []

    def copy(self, objects: Mapping[str, Any], step: int) -> None:
        """Make a copy, and keep the copy before it; drop older ones."""
        optimizers, modules = _trained(objects)
        copy: dict[str, Any] = {
            "step": step,
            "modules": {
                name: {k: w if w is None else _to_host(w) for k, w in _now(module).items()}
                for name, module in modules.items()
            },
            "optimizers": {
                name: tree_map_only(Tensor, _to_host, optimizer.state_dict()["state"])
                for name, optimizer in optimizers.items()
            },
        }
        self.copies = [*self.copies[-1:], copy]

    @torch.no_grad()
    def put_back(self, objects: Mapping[str, Any]) -> int | None:
        """Put the earlier copy back and drop the later one; return the step of the copy.

        If parameters have other shapes by now, drop all copies and return None.
        """
        copy = self.copies[0]
        self.copies = [copy]
        optimizers, modules = _trained(objects)
        now = {name: _now(module) for name, module in modules.items()}
        if not all(_fits(copy["modules"][name], weights) for name, weights in now.items()):
            self.copies = []
            return None
        for name, module in modules.items():
            for key, (place, _) in pairs_of(module, module).items():
                set_at(place, copy["modules"][name][key], next(module.parameters()).device)
        for name, optimizer in optimizers.items():
            # Cloned, because an optimizer takes tensors over and then changes them.
            state = tree_map_only(Tensor, Tensor.clone, copy["optimizers"][name])
            groups = optimizer.state_dict()["param_groups"]
            with in_place(optimizer):
                optimizer.load_state_dict({"state": state, "param_groups": groups})
        return int(copy["step"])

    def state_dict(self) -> dict[str, Any]:
        """The copies."""
        return {"copies": self.copies}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take the copies over."""
        self.copies = list(saved["copies"])


def _trained(objects: Mapping[str, Any]) -> tuple[dict[str, Optimizer], dict[str, Module]]:
    """The optimizers among the objects, and the modules with parameters that they hold."""
    optimizers = {name: each for name, each in objects.items() if isinstance(each, Optimizer)}
    trained = {id(p) for optimizer in optimizers.values() for p in parameters_of(optimizer)}
    modules = {
        name: unwrap(each)
        for name, each in objects.items()
        if isinstance(each, Module) and any(id(own) in trained for own in each.parameters())
    }
    return optimizers, modules


def _now(module: Module) -> dict[str, Any]:
    """The weights of a module, without those that have no shape yet."""
    found = {name: tensor_at(place) for name, (place, _) in pairs_of(module, module).items()}
    return {name: each for name, each in found.items() if not is_lazy(each)}


def _fits(kept: Mapping[str, Any], weights: Mapping[str, Any]) -> bool:
    """True if a copy has the same parameters; buffers may have had any shape."""
    return kept.keys() == weights.keys() and all(
        fits(kept[key], w) for key, w in weights.items() if isinstance(w, Parameter)
    )


def _to_host(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
