"""The buckets in which DDP adds up gradients over ranks, arranged after a resume as before it.

`DistributedDataParallel` arranges them anew once in each process, by the order in which its first
backward pass has gradients ready. The order in which more than two ranks add up a number depends
on its place in a bucket, and so do the last bits of the sum.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Embedding, EmbeddingBag
from torch.nn.parallel import DistributedDataParallel

from .. import ranks
from ..modules import all_modules
from ..names import listed
from .update import Update

if TYPE_CHECKING:
    from ..engine import Engine

logger: logging.Logger = logging.getLogger("camshaft")

Buckets = list[list[int]]
"""The numbers of the parameters in each bucket of a model."""

REBUILT = "rebuilt_per_bucket_param_indices"
OF_REDUCER = (
    "_check_reducer_finalized",
    "_rebuild_buckets",
    "prepare_for_backward",
    "prepare_for_forward",
)
"""The private names of torch's reducer that this file needs."""


def buckets_of(engine: Engine[Any, Any]) -> dict[str, Buckets]:
    """The arranged buckets of each model, by its name; all ranks have to call this.

    If the next forward pass would arrange the buckets, they are arranged here.
    """
    found = {name: _arranged(model) for name, model in _models(engine) if not _hindrance(model)}
    return {name: buckets for name, buckets in found.items() if buckets}


def arrange_buckets(engine: Engine[Any, Any], saved: Mapping[str, Buckets]) -> None:
    """Arrange the buckets of each model as they were saved; all ranks have to call this.

    A backward pass of zeros has gradients ready in the saved order. Gradients and weights stay.
    """
    for name, model in _models(engine):
        if _hindrance(model):
            continue
        if (buckets := saved.get(name)) is None:
            if saved:
                _warn(
                    f"the gradient buckets of {name!r} are not known; the saved run has those of "
                    f"{listed(saved)}. An object or an Update that has kept its name keeps them"
                )
            continue
        group = model.process_group
        if not ranks.any_rank(not _fits(model, buckets), group=group) and not _arranged(model):
            _pass_zeros(model, [*chain(*buckets)])
        if sorted(_arranged(model)) != sorted(buckets):
            _warn(f"the gradient buckets of {name!r} are not those of the saved run")


def warn_of_buckets(engine: Engine[Any, Any]) -> None:
    """Warn of models whose buckets cannot be arranged as before a resume, and of lost states."""
    for _, model in _wrapped(engine):
        for state in _states_of_hooks(model):
            if not any(state is each for each in engine.objects.values()):
                kind = type(state).__name__
                _warn(
                    f"what the {kind} of a communication hook counts and keeps is in no "
                    "checkpoint. Give it state_dict() and load_state_dict(), such as in a "
                    f"subclass, and name it in engine.objects, as {kind.lower()!r}"
                )
    for name, model in _models(engine):
        if hindrance := _hindrance(model):
            _warn(f"the gradient buckets of {name!r} cannot be put back: {hindrance}")


def _warn(doubt: str) -> None:
    if ranks.rank() == 0:
        logger.warning("a resumed run may not be the same to the last bit: %s", doubt)


def _models(engine: Engine[Any, Any]) -> Iterator[tuple[str, DistributedDataParallel]]:
    """The models that more than two ranks train and that arrange their buckets, by name."""
    for name, model in _wrapped(engine) if ranks.world_size() > 2 else ():
        arranges = model.static_graph or not model.find_unused_parameters
        if arranges and ranks.world_size(model.process_group) > 2:
            yield name, model


def _wrapped(engine: Engine[Any, Any]) -> Iterator[tuple[str, DistributedDataParallel]]:
    """The models in DDP, by name."""
    steps = {name: e for name, e in engine.handlers.items() if isinstance(e, Update)}
    known: set[int] = set()
    for name, each in (steps | dict(engine.objects)).items():
        models = [one for one in all_modules([each]) if isinstance(one, DistributedDataParallel)]
        for number, model in enumerate(models):
            if id(model) not in known:
                yield f"{name}.{number}" if number else name, model
            known.add(id(model))


def _hindrance(model: DistributedDataParallel) -> str:
    """Why a pass of zeros would not arrange the buckets, or would change other things; or empty."""
    known = getattr(model, "reducer", None), getattr(model, "logger", None)
    if not all(hasattr(known[0], name) for name in OF_REDUCER):
        return f"torch {torch.__version__} has another reducer"
    if not hasattr(known[1], "set_runtime_stats_and_log"):
        return f"torch {torch.__version__} has another logger"
    if model.static_graph:
        return "static_graph=True"
    if model.mixed_precision is not None:
        return "mixed_precision="
    if _states_of_hooks(model):
        return "a communication hook with a state of its own"
    if any(isinstance(e, Embedding | EmbeddingBag) and e.sparse for e in model.modules()):
        return "sparse gradients"
    if any(e._backward_hooks or e._post_accumulate_grad_hooks for e in _parameters(model)):
        return "hooks of parameters"
    return ""


def _states_of_hooks(model: DistributedDataParallel) -> list[Any]:
    """What communication hooks are called with, if it is no process group alone."""
    states = [state for _, state in getattr(model, "_comm_hooks", ())]
    return [e for e in states if e is not None and e is not model.process_group]


def _parameters(model: DistributedDataParallel) -> list[Any]:
    """The parameters by the reducer's numbers; there are fewer if some were frozen since."""
    ignored = model.parameters_to_ignore
    named = model.module.named_parameters()
    return [each for name, each in named if each.requires_grad and name not in ignored]


def _fits(model: Any, buckets: Buckets) -> bool:
    count = model._get_ddp_logging_data().get("num_parameter_tensors")
    return sorted(chain(*buckets)) == list(range(len(_parameters(model)))) and (
        count == len(_parameters(model))
    )


def _arranged(model: Any) -> Buckets:
    """The buckets as a backward pass has arranged them; empty before the first one."""
    if REBUILT not in model._get_ddp_logging_data():
        try:
            model._check_reducer_finalized()
        except RuntimeError:  # a parameter had no gradient; the next forward pass raises
            return []
        model.reducer._rebuild_buckets()
        model.logger.set_runtime_stats_and_log()
    text = model._get_ddp_logging_data().get(REBUILT, "")
    return [[*map(int, each.split())] for each in text.split(",") if each.strip()]


def _pass_zeros(model: DistributedDataParallel, order: list[int]) -> None:
    parameters = _parameters(model)
    gradients = [each.grad for each in parameters]
    for each in parameters:
        each.grad = None
    with torch.enable_grad():
        model.reducer.prepare_for_forward()
        model.reducer.prepare_for_backward([])
        for number in order:
            parameters[number].backward(torch.zeros_like(parameters[number]))
    for each, gradient in zip(parameters, gradients, strict=True):
        each.grad = gradient
