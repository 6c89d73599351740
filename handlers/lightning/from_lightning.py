"""One callback of Lightning's as a handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...engine import Engine, Events, Stage, State
from ...engine.lightning import LightningSteps, stage_of

TRAINING = {
    Events.STARTED: ("on_fit_start", "on_train_start"),
    Events.EPOCH_STARTED: ("on_train_epoch_start",),
    Events.ITERATION_STARTED: ("on_train_batch_start",),
    Events.BACKWARD_COMPLETED: ("on_before_optimizer_step",),
    Events.ITERATION_COMPLETED: ("on_train_batch_end",),
    Events.EPOCH_COMPLETED: ("on_train_epoch_end",),
    Events.COMPLETED: ("on_train_end", "on_fit_end"),
    Events.FAILED: ("on_exception",),
}
VALIDATION = {
    Events.STARTED: ("on_validation_start",),
    Events.EPOCH_STARTED: ("on_validation_epoch_start",),
    Events.ITERATION_STARTED: ("on_validation_batch_start",),
    Events.ITERATION_COMPLETED: ("on_validation_batch_end",),
    Events.EPOCH_COMPLETED: ("on_validation_epoch_end",),
    Events.COMPLETED: ("on_validation_end",),
}
"""By event, in training and in evaluations: the hooks that are called, in this order."""
OWN = {"setup", "state_dict", "load_state_dict", "state_key"}
HERE = {
    "ModelCheckpoint": 'Checkpoint("runs/name", keep=latest(2) | best(1, "val_loss"))',
    "OnExceptionCheckpoint": 'Checkpoint("runs/name", when=Events.STEP_COMPLETED(every=500))',
    "EarlyStopping": 'EarlyStopping("val_loss", patience=3)',
    "LearningRateMonitor": "nothing: loggers write the rates",
    "LearningRateFinder": "find_lr(engine, loader)",
    "BatchSizeFinder": "find_batch_size(engine, ...)",
    "StochasticWeightAveraging": "SWA(...)",
    "WeightAveraging": "EMA(...)",
    "EMAWeightAveraging": "EMA(...)",
    "GradientAccumulationScheduler": "from_lightning(module, accumulate=4), one number for a run",
    "TQDMProgressBar": 'ProgressBar("train_loss")',
    "RichProgressBar": 'ProgressBar("train_loss")',
    "ModelSummary": "print(describe_model(module))",
    "RichModelSummary": "print(describe_model(module))",
    "DeviceStatsMonitor": "SystemUse()",
    "ThroughputMonitor": "Throughput()",
    "Timer": "StopAfter(seconds=3600)",
    "BackboneFinetuning": "Freeze(...)",
    "BasePredictionWriter": 'engine.add(Collect()), engine.evaluate(loader, name="predict")',
}
"""By class: the handler that does the same here."""


class FromLightning:
    """Call the hooks of a Lightning callback in a run of an engine made by `from_lightning`.

    The callback gets the module and a small view of a trainer: `current_epoch`, `global_step`,
    `callback_metrics`, `should_stop` and the like; what it reads beyond that is an error that names
    it. Its `state_dict` is saved with the run.

    Args:
        callback: An object of a class derived from Lightning's `Callback`, other than those that
            Camshaft has a handler for.

    Raises:
        TypeError: It is no callback.
        ValueError: It has a hook that is not called here, or Camshaft has a handler for it; the
            message names both.
    """

    def __init__(self, callback: Any) -> None:
        classes = type(callback).__mro__
        base = next((each for each in classes if each.__name__ == "Callback"), None)
        if base is None:
            raise TypeError(f"FromLightning got {callback!r}; it needs a Callback of Lightning's")
        name = type(callback).__name__
        for cls in classes:
            is_theirs = cls.__module__.split(".")[0] in ("lightning", "pytorch_lightning")
            if is_theirs and cls.__name__ in HERE:
                raise ValueError(
                    f"FromLightning: {name} works on Lightning's loops; on this engine the same is "
                    f"done by {HERE[cls.__name__]}"
                )
        known = {hook for hooks in TRAINING.values() for hook in hooks}
        known |= {hook for hooks in VALIDATION.values() for hook in hooks} | OWN
        public = {each for each in dir(base) if not each.startswith("_")}
        self.hooks = {
            each for each in public if getattr(type(callback), each) is not getattr(base, each)
        }
        for hook in sorted(self.hooks - known):
            raise ValueError(
                f"{name}.{hook} is not called by FromLightning; attach a function to the event "
                f"that is meant, by engine.on(...). It calls {', '.join(sorted(known - OWN))}"
            )
        self.callback = callback
        self.name = name

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Attach the hooks that the callback defines.

        Raises:
            TypeError: The engine was not made by `from_lightning`.
        """
        found = (each for each in engine.handlers.values() if isinstance(each, LightningSteps))
        if (steps := next(found, None)) is None:
            raise TypeError("FromLightning needs an engine made by from_lightning(module)")
        trainer, module = steps.trainer, steps.module
        if "setup" in self.hooks:
            self.callback.setup(trainer, module, "fit")
        if "state_dict" in self.hooks:
            engine.on(Events.STARTED, stage=Stage.MEASURE)(self.remember)
        for each, events in ((engine, TRAINING), (engine.evaluation, VALIDATION)):
            for event, hooks in events.items():
                for hook in hooks:
                    if hook in self.hooks:
                        call = getattr(self.callback, hook)
                        is_end = event is Events.EPOCH_COMPLETED
                        each.on(event(last=True) if is_end else event)(
                            _Call(call, trainer, module, hook)
                        )

    def remember(self, state: State[Any, Any]) -> None:
        """Let the callback's state be saved with the run, and put back what was saved."""
        state.recall(self, lambda: self.callback)


class _Call:
    """A hook of a callback as a function of the state."""

    def __init__(self, call: Callable[..., Any], trainer: Any, module: Any, hook: str) -> None:
        self._call, self._given, self._hook = call, (trainer, module), hook
        self.__qualname__ = getattr(call, "__qualname__", hook)

    def __call__(self, state: State[Any, Any]) -> None:
        if self._hook.startswith("on_validation") and stage_of(state) != "validation":
            return
        given: tuple[Any, ...] = ()
        index = state.iteration_in_epoch - 1
        if self._hook.endswith("batch_start"):
            given = (state.batch, index)
        elif self._hook.endswith("batch_end"):
            given = (state.output, state.batch, index)
        elif self._hook == "on_before_optimizer_step":
            given = (state.optimizer,)
        elif self._hook == "on_exception":
            given = (state.error,)
        self._call(*self._given, *given)
