"""Which hooks of a LightningModule are called, and what to do in the place of the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from torch.nn import Module

from ....engine import package_of

PACKAGES = ("lightning", "pytorch_lightning")
STAGES = ("validation", "test", "predict")
ENDS = ("start", "end")

TAKEN = frozenset(
    {
        *("training_step", "configure_optimizers", "lr_scheduler_step", "forward"),
        *("prepare_data", "setup", "teardown", "configure_model", "configure_gradient_clipping"),
        *("on_before_backward", "on_after_backward", "on_before_optimizer_step"),
        *("on_save_checkpoint", "on_load_checkpoint"),
        *("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"),
        *("train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader"),
        *(f"{stage}_step" for stage in STAGES),
        *(f"on_{of}_{end}" for of in ("fit", "train", *STAGES) for end in ENDS),
        *(
            f"on_{stage}_{of}_{end}"
            for stage in ("train", *STAGES)
            for of in ("epoch", "batch")
            for end in ENDS
        ),
    }
)
"""The hooks that are called; the loaders are the script's to call."""

_STEPS = "the engine's Update makes backward passes and steps, and clears gradients"
_MODES = "evaluations choose the modes of modules and leave each as it was"
_AFTER = f"{_STEPS}; attach a function: engine.on(Events.STEP_COMPLETED)"
_DROPPED = {
    "training_epoch_end": "on_train_epoch_end",
    "validation_epoch_end": "on_validation_epoch_end",
    "test_epoch_end": "on_test_epoch_end",
    "training_step_end": "training_step",
    "validation_step_end": "validation_step",
    "on_epoch_start": "on_train_epoch_start",
    "on_epoch_end": "on_train_epoch_end",
    "on_batch_start": "on_train_batch_start",
    "on_batch_end": "on_train_batch_end",
}
NOT_TAKEN = {
    "backward": f"{_STEPS}; override on_before_backward or on_after_backward, or set "
    "automatic_optimization = False",
    "optimizer_step": f"{_AFTER}, and for a warm-up return a scheduler from configure_optimizers",
    "optimizer_zero_grad": _AFTER,
    "on_before_zero_grad": _AFTER,
    "on_validation_model_zero_grad": _AFTER,
    "configure_callbacks": "attach handlers to the engine: engine.add(...), or "
    "engine.add(FromLightning(callback))",
    "configure_sharded_model": "shard the model in configure_model",
    **{f"on_{stage}_model_{mode}": _MODES for stage in STAGES for mode in ("eval", "train")},
    **{
        old: f"Lightning 2 does not call it either: keep what each step gives in a list, and use "
        f"{new}"
        for old, new in _DROPPED.items()
    },
}
"""The hooks that a module may not override here, and what to do instead."""


class Hooks:
    """The hooks that a module overrides, and those of the callbacks."""

    def __init__(self, module: Module) -> None:
        self.module: Any = module
        self.own: set[str] = overridden(module)
        self.callbacks: dict[str, list[Callable[..., object]]] = {}
        """By name."""

    def __contains__(self, name: str) -> bool:
        return name in self.own or name in self.callbacks

    def call(self, name: str, *given: Any) -> Any:
        """Call a hook: of the callbacks first, then of the module, whose result this is."""
        for hook in self.callbacks.get(name, ()):
            hook(*given)
        return getattr(self.module, name)(*given) if name in self.own else None


def overridden(module: Module) -> set[str]:
    """The hooks that the class of a module defines."""
    cls = type(module)
    base = next((each for each in cls.__mro__ if _is_base(each)), None)
    if base is None:
        raise TypeError(
            f"from_lightning got a {cls.__name__}; it needs a LightningModule, of lightning or of "
            "pytorch_lightning. For any other module there is supervised(model, optimizer, loss)"
        )
    found = {
        name
        for name in TAKEN | NOT_TAKEN.keys()
        if getattr(cls, name, None) is not getattr(base, name, None)
    }
    if not getattr(module, "automatic_optimization", True):
        found.discard("backward")  # manual_backward calls it
    own = {name for name in found & _DROPPED.keys() if name.startswith("on_")}  # these took nothing
    found -= {name for name in own if inspect.getfullargspec(getattr(cls, name)).args[1:]}
    for name in sorted(found & NOT_TAKEN.keys()):
        raise ValueError(f"{cls.__name__}.{name} is not called by this engine: {NOT_TAKEN[name]}")
    return found


def takes_index(step: Callable[..., Any]) -> bool:
    """True if a step takes the number of the batch, under whatever name."""
    parameters = inspect.signature(step).parameters
    for name, instead in (
        ("dataloader_iter", "take the batch"),
        ("dataloader_idx", "write dataloader_idx=0, and give each data set a Validate of its own"),
        ("optimizer_idx", "set automatic_optimization = False, and step each of self.optimizers()"),
    ):
        if name in parameters and parameters[name].default is inspect.Parameter.empty:
            raise ValueError(f"{step.__qualname__}({name}) is not taken: {instead}")
    try:
        inspect.signature(step).bind("batch", "index")
    except TypeError:
        return False
    return True


@contextmanager
def called_by_forward(module: Any, step: Callable[..., Any]) -> Generator[None, None, None]:
    """Let the module's next forward pass be a step, so that a wrapper around it takes part."""

    def first(*given: Any) -> Any:
        del module.forward  # the module's own again, which the step may call
        return step(*given)

    module.forward = first
    try:
        yield
    finally:
        vars(module).pop("forward", None)


def _is_base(cls: type) -> bool:
    return cls.__name__ == "LightningModule" and package_of(cls) in PACKAGES
