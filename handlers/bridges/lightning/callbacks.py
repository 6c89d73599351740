"""One callback of Lightning's as a handler."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....engine import Engine, Events, Stage, State, package_of
from .epochs import LightningEpochs
from .hooks import PACKAGES, TAKEN

OWN = {"setup", "on_exception", "state_dict", "load_state_dict", "state_key"}
CALLED = OWN | {name for name in TAKEN if name.startswith("on_") and "checkpoint" not in name}
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
"""By callback class: the equivalent handler."""


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
            is_theirs = package_of(cls) in PACKAGES
            if is_theirs and cls.__name__ in HERE:
                raise ValueError(
                    f"FromLightning: {name} works on Lightning's loops; on this engine the same is "
                    f"done by {HERE[cls.__name__]}"
                )
        public = {each for each in dir(base) if not each.startswith("_")}
        self.hooks: set[str] = {
            each for each in public if getattr(type(callback), each) is not getattr(base, each)
        }
        for hook in sorted(self.hooks - CALLED):
            raise ValueError(
                f"{name}.{hook} is not called by FromLightning; attach a function to the event "
                f"that is meant, by engine.on(...). It calls {', '.join(sorted(CALLED - OWN))}"
            )
        self.callback = callback
        self.name = name

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Attach the hooks that the callback defines."""
        if not (found := engine.find(LightningEpochs)):
            raise TypeError("FromLightning needs an engine made by from_lightning(module)")
        trainer, module = found[0].trainer, found[0].module
        trainer.callbacks.append(self.callback)
        if "setup" in self.hooks:
            self.callback.setup(trainer, module, "fit")
        if "state_dict" in self.hooks:
            engine.on(Events.STARTED, stage=Stage.MEASURE)(self.remember)
        if "on_exception" in self.hooks:

            @engine.on(Events.FAILED)
            def tell(state: State[Any, Any]) -> None:
                self.callback.on_exception(trainer, module, state.error)

        if "on_before_optimizer_step" in self.hooks:
            found[0].look_at_gradients(engine)
        for name in self.hooks - OWN:
            hook = partial(getattr(self.callback, name), trainer, module)
            trainer.hooks.callbacks.setdefault(name, []).append(hook)

    def remember(self, state: State[Any, Any]) -> None:
        """Let the callback's state be saved with the run, and put back what was saved."""
        state.recall(self, lambda: self.callback)
