"""Which hooks of a LightningModule are called, and what to do in the place of the others."""

from __future__ import annotations

from typing import Any

from torch.nn import Module

PACKAGES = ("lightning", "pytorch_lightning")
STAGES = ("validation", "test", "predict")

TAKEN = frozenset(
    {
        *("training_step", "configure_optimizers", "lr_scheduler_step", "forward"),
        *("prepare_data", "setup", "teardown", "configure_model"),
        *("on_fit_start", "on_fit_end", "on_train_start", "on_train_end"),
        *("on_train_epoch_start", "on_train_epoch_end"),
        *("on_train_batch_start", "on_train_batch_end"),
        *("on_before_backward", "on_after_backward", "on_before_optimizer_step"),
        *("configure_gradient_clipping", "on_save_checkpoint", "on_load_checkpoint"),
        *("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"),
        *("train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader"),
        *(f"{stage}_step" for stage in STAGES),
        *(f"on_{stage}_{when}" for stage in STAGES for when in ("start", "end")),
        *(
            f"on_{stage}_{of}_{when}"
            for stage in STAGES
            for of in ("epoch", "batch")
            for when in ("start", "end")
        ),
    }
)
"""The hooks that are called; the loaders are the script's to call."""

_STEPS = "the engine's Update makes backward passes and steps"
_MODES = "evaluations choose the modes of modules and leave each as it was"
_DROPPED = (
    "Lightning 2 does not call it either: keep what each step gives in a list, and read it in"
)
NOT_TAKEN = {
    "backward": f"{_STEPS}; override on_before_backward or on_after_backward, or set "
    "automatic_optimization = False",
    "optimizer_step": f"{_STEPS}; for a warm-up return a scheduler from configure_optimizers, and "
    "for all else attach a function: engine.on(Events.STEP_COMPLETED)",
    "optimizer_zero_grad": f"{_STEPS}, and clears gradients",
    "on_before_zero_grad": f"{_STEPS}, and clears gradients after each: attach a function by "
    "engine.on(Events.STEP_COMPLETED)",
    "configure_callbacks": "attach handlers to the engine: engine.add(...), or "
    "engine.add(FromLightning(callback))",
    "configure_sharded_model": "shard the model in configure_model",
    **{f"on_{stage}_model_{mode}": _MODES for stage in STAGES for mode in ("eval", "train")},
    "on_validation_model_zero_grad": f"{_STEPS}, and clears gradients",
    "training_epoch_end": f"{_DROPPED} on_train_epoch_end",
    "validation_epoch_end": f"{_DROPPED} on_validation_epoch_end",
    "test_epoch_end": f"{_DROPPED} on_test_epoch_end",
    "training_step_end": "Lightning 2 does not call it either: put it into training_step",
    "validation_step_end": "Lightning 2 does not call it either: put it into validation_step",
    "on_epoch_start": "Lightning 2 does not call it either: on_train_epoch_start",
    "on_epoch_end": "Lightning 2 does not call it either: on_train_epoch_end",
    "on_batch_start": "Lightning 2 does not call it either: on_train_batch_start",
    "on_batch_end": "Lightning 2 does not call it either: on_train_batch_end",
}
"""The hooks that a module may not override here, and what to do instead."""


def overridden(module: Module) -> set[str]:
    """The hooks that the class of a module defines.

    Raises:
        TypeError: The module is no LightningModule.
        ValueError: It defines a hook that is not called here.
    """
    cls = type(module)
    base = next((each for each in cls.__mro__ if _is_base(each)), None)
    if base is None:
        raise TypeError(
            f"from_lightning got a {cls.__name__}; it needs a LightningModule, of lightning or of "
            "pytorch_lightning. For any other module there is supervised(model, optimizer, loss)"
        )
    found = {name for name in TAKEN | NOT_TAKEN.keys() if _get(cls, name) is not _get(base, name)}
    if not getattr(module, "automatic_optimization", True):
        found.discard("backward")  # manual_backward calls it
    for name in sorted(found & NOT_TAKEN.keys()):
        raise ValueError(f"{cls.__name__}.{name} is not called by this engine: {NOT_TAKEN[name]}")
    return found


def _is_base(cls: type) -> bool:
    return cls.__name__ == "LightningModule" and cls.__module__.split(".")[0] in PACKAGES


def _get(cls: type, name: str) -> Any:
    return getattr(cls, name, None)
