"""The engine of a LightningModule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.nn import Module

from ....engine import Engine, ranks
from ....engine.modules import unwrap
from ....engine.supervised import PRECISIONS, way_to
from ....engine.update import Update
from .epochs import LightningEpochs
from .hooks import Hooks
from .log import log
from .optimizers import configured
from .steps import LightningSteps
from .trainer import TrainerView, optimizers

TRANSFERS = {"on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"}


def from_lightning(
    module: Module,
    *,
    accumulate: int = 1,
    precision: str = "fp32",
    device: torch.device | str | None = None,
    trainer: Mapping[str, Any] | None = None,
) -> Engine[Any, Any]:
    """Build the engine that trains and evaluates a LightningModule.

    `training_step` and an `Update` are the step, or in manual optimisation `training_step` alone;
    an evaluation calls `validation_step`, or `test_step` and `predict_step` if its name is `"test"`
    or `"predict"`. What the module logs is in `state.metrics` under the names that Lightning has in
    `trainer.callback_metrics`. The schedulers of `configure_optimizers` step with the run, and the
    hooks of the module are called. Everything else is a handler:

    ```python
    engine = from_lightning(LitModel())
    engine.add(ClipGradNorm(0.5), Validate(val_loader), Checkpoint("runs/lit", resume=True))
    engine.run(train_loader, max_epochs=3)
    ```

    Args:
        module: Made anew; `prepare_data`, `setup`, `configure_model` and `configure_optimizers` are
            called here. On several ranks a `DistributedDataParallel` around it.
        accumulate: Micro-batches of one optimizer step.
        precision: `"fp32"`, or `"bf16"` or `"fp16"` by `torch.autocast`, as in `supervised`.
        device: Where the module computes; where it is already, by default.
        trainer: More that the module reads of `self.trainer`, such as
            `{"estimated_stepping_batches": 1000}`, or Lightning's own logger:
            `{"logger": TensorBoardLogger("logs")}`.

    Raises:
        TypeError: `module` is no LightningModule.
        ValueError: The module overrides a hook that is not called here; the message names it.
    """
    lit: Any = unwrap(module)
    hooks = Hooks(lit)
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}: needs one of {', '.join(PRECISIONS)}")
    view = TrainerView(hooks, {"accumulate_grad_batches": accumulate, **(trainer or {})})
    lit.trainer = view
    with ranks.rank_zero_first(local=True):
        if ranks.local_rank() == 0 and "prepare_data" in hooks.own:
            lit.prepare_data()
    lit.setup(stage="fit")
    lit.configure_model()
    if device is not None:
        module.to(device)
    place = next((each.device for each in module.parameters()), torch.device("cpu"))
    update = None
    if "training_step" in hooks.own:
        view.optimizers, view.lr_scheduler_configs = configured(lit)
        update = _update(module, lit, view, accumulate, precision, place)
    kind = PRECISIONS[precision]
    autocast = None if kind is None else torch.autocast(place.type, kind)
    steps = LightningSteps(module, view, update, _prepare(hooks, place), autocast)
    epochs = LightningEpochs(module, view)
    view.recall = epochs.recall
    for each in lit.modules():
        if hasattr(each, "save_hyperparameters"):  # a LightningModule, also one inside
            each.log, each.optimizers = partial(log, view), partial(optimizers, view)
    objects = _objects(view, update)
    engine: Engine[Any, Any] = Engine(steps.train, evaluate=steps.evaluate, objects=objects)
    if update is not None:
        engine.rehearsal = lambda state, batch: update.rehearse(state)
        engine.add(update)
    return engine.add(epochs)


def _update(
    module: Module,
    lit: Any,
    view: TrainerView,
    accumulate: int,
    precision: str,
    place: torch.device,
) -> Update | None:
    """The update of the one optimizer; None if the module steps its optimizers itself."""
    if not lit.automatic_optimization:
        if accumulate != 1 or precision == "fp16" or module is not lit:
            raise ValueError(
                f"{type(lit).__name__} has automatic_optimization = False: accumulate=, "
                "precision='fp16' and a DistributedDataParallel around it are not taken"
            )
        return None
    if len(view.optimizers) > 1:
        raise ValueError(
            f"configure_optimizers of {type(lit).__name__} gives {len(view.optimizers)} "
            "optimizers, and automatic optimisation has one: set automatic_optimization = False, "
            "and step each of self.optimizers() in training_step"
        )
    for each in view.lr_scheduler_configs:
        each.check(view.optimizers)
    update = Update(
        view.optimizers[0],
        model=None if module is lit else module,
        accumulate=accumulate,
        scaler=torch.amp.GradScaler(place.type) if precision == "fp16" else None,
    )
    if update.needs_closure and "on_after_backward" in view.hooks:
        raise ValueError(
            f"{type(lit).__name__}.on_after_backward is not called by this engine with "
            f"{type(update.optimizer).__name__}, which computes the loss several times a step"
        )
    return update


def _objects(view: TrainerView, update: Update | None) -> dict[str, Any]:
    """The objects that checkpoints save."""
    objects: dict[str, Any] = {"model": view.lightning_module}
    schedulers = [each.scheduler for each in view.lr_scheduler_configs]
    for kind, found in (("optimizer", view.optimizers), ("scheduler", schedulers)):
        for number, each in enumerate(found):
            objects[kind if number == 0 else f"{kind}_{number + 1}"] = each
    if update is not None and update.scaler is not None:
        objects["scaler"] = update.scaler
    if view.hooks.own & {"on_save_checkpoint", "on_load_checkpoint"}:
        objects["extras"] = Extras(view.lightning_module)
    return objects


def _prepare(hooks: Hooks, place: torch.device) -> Callable[[Any], Any] | None:
    """How a batch comes to the device; None if it is there."""
    lit = hooks.module
    if not hooks.own & TRANSFERS:
        return way_to(place)

    def prepare(batch: Any) -> Any:
        batch = lit.on_before_batch_transfer(batch, 0)
        batch = lit.transfer_batch_to_device(batch, place, 0)
        return lit.on_after_batch_transfer(batch, 0)

    return prepare


class Extras:
    """Calls `on_save_checkpoint` and `on_load_checkpoint` of a module."""

    def __init__(self, module: Any) -> None:
        # Not the module itself, which evaluations would look for among attributes.
        self._save, self._load = module.on_save_checkpoint, module.on_load_checkpoint

    def state_dict(self) -> dict[str, Any]:
        """What the module adds."""
        added = _Added()
        self._save(added)
        return dict(added)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Give it back to the module."""
        self._load(_Added(saved))


class _Added(dict[str, Any]):
    """Holds what a module adds; what Lightning has in its checkpoints is refused by name."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(
            f"on_save_checkpoint and on_load_checkpoint get what the module adds itself, and "
            f"{name!r} is not there: weights, optimizers and counters are saved by Checkpoint"
        )
