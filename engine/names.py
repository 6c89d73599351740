"""Suggestions for names that do not exist, also for names of other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

RUN = "engine.run(loader, max_epochs=...)"
ON = "@engine.on(Events.EPOCH_COMPLETED(every=2)) above a function of the state"
STOP, STOP_EPOCH = "state.stop(reason)", "state.stop_epoch()"
METRIC = 'state.metrics["name"] = value'
MODEL = 'engine.objects["model"], in a handler state.engine.objects["model"]'

# What to write for the words of pytorch-ignite, Lightning, accelerate and Hugging Face's Trainer.
OF_EVENTS = {
    "BATCH_BEGIN": "Events.ITERATION_STARTED",
    "BATCH_COMPLETED": "Events.ITERATION_COMPLETED",
    "BATCH_END": "Events.ITERATION_COMPLETED",
    "BATCH_STARTED": "Events.ITERATION_STARTED",
    "CHECKPOINT": "Events.SAVING",
    "DATALOADER_STOP_ITERATION": "Events.EPOCH_COMPLETED",
    "EPOCH_BEGIN": "Events.EPOCH_STARTED",
    "EPOCH_END": "Events.EPOCH_COMPLETED",
    "EXCEPTION_RAISED": "Events.FAILED",
    "GET_BATCH_COMPLETED": "Events.ITERATION_STARTED",
    "GET_BATCH_STARTED": "Events.ITERATION_STARTED, when the batch is there: state.batch",
    "INTERRUPT": "Events.CLOSED, where state.is_interrupted",
    "ITERATION_END": "Events.ITERATION_COMPLETED",
    "OPTIMIZER_STEP": "Events.GRADIENTS_READY before a step, Events.STEP_COMPLETED after it",
    "TERMINATE": "Events.COMPLETED, where state.stop_reason says why",
    "TERMINATE_SINGLE_EPOCH": "Events.EPOCH_COMPLETED",
    "TRAIN_BEGIN": "Events.STARTED",
    "TRAIN_END": "Events.COMPLETED",
    "TRAINING_STEP": "Events.ITERATION_COMPLETED",
}
OF_ENGINES = {
    "accumulate": "Update(optimizer, accumulate=4)",
    "add_callback": "engine.add(handler)",
    "add_event_handler": ON,
    "add_handler": "engine.add(handler)",
    "attach": "engine.add(handler)",
    "backward": "Update(optimizer), and update(state, loss) in the process function",
    "callback_metrics": "state.metrics",
    "callbacks": "engine.handlers, and engine.add(handler)",
    "clip_grad_norm_": "ClipGradNorm(1.0)",
    "current_epoch": "state.epoch",
    "fire_event": "state.fire(event)",
    "fit": RUN,
    "gather_for_metrics": "Metrics(...), which counts each sample once",
    "global_step": "state.step",
    "has_event_handler": "engine.has_handlers(event)",
    "interrupt": "state.interrupt(reason)",
    "is_main_process": "ranks.rank() == 0",
    "load_state_dict": "Checkpoint(directory, resume=True)",
    "log": METRIC,
    "model": MODEL,
    "on_event": ON,
    "optimizer": 'engine.objects["optimizer"]',
    "predict": "predict(engine, loader, directory), or engine.evaluate(loader) with a Collect",
    "prepare": "ranks.prepare(model), then supervised(model, ...) or Update(optimizer)",
    "register_events": "class MyEvents(EventEnum)",
    "remove_event_handler": "engine.off(function)",
    "save_checkpoint": "state.save(reason), with a Checkpoint",
    "save_state": "state.save(reason), with a Checkpoint",
    "set_data": "engine.run(data, ...)",
    "should_stop": STOP,
    "state": f"state = {RUN}; handlers get the state as their argument",
    "state_dict": "Checkpoint(directory, resume=True)",
    "terminate": STOP,
    "terminate_epoch": STOP_EPOCH,
    "test": "engine.evaluate(loader)",
    "train": RUN,
    "unwrap_model": "unwrap(model)",
    "validate": "engine.evaluate(loader)",
}
OF_STATES = {
    "batch_idx": "state.iteration_in_epoch, which counts from 1",
    "current_epoch": "state.epoch",
    "dataloader": "state.batch for the batch at hand",
    "exception": "state.error",
    "fire_event": "state.fire(event)",
    "global_step": "state.step",
    "is_training": "state.training",
    "log": METRIC,
    "log_history": METRIC,
    "loss": 'state.metrics["loss"]',
    "lr": 'state.metrics["lr"], which LRSchedule writes',
    "max_iters": "state.max_iterations",
    "model": 'state.engine.objects["model"]',
    "num_train_epochs": "state.max_epochs",
    "objects": "state.engine.objects",
    "should_stop": STOP,
    "state": "state.epoch and the like: handlers get the state itself, not an engine",
    "terminate": STOP,
    "terminate_epoch": STOP_EPOCH,
}
OF_PACKAGE = {
    "Accelerator": "supervised(model, optimizer, loss_fn), or Engine(step) with an Update",
    "Callback": "a dataclass with attach(engine), see docs/guides/handler.md",
    "GradientAccumulationScheduler": "Update(optimizer, accumulate=4)",
    "LearningRateMonitor": 'state.metrics["lr"], which LRSchedule writes',
    "ModelCheckpoint": "camshaft.handlers.Checkpoint",
    "ModelEMA": "camshaft.handlers.EMA",
    "TerminateOnNan": "camshaft.handlers.NonFiniteGuard",
    "Timer": "camshaft.handlers.StopAfter",
    "Trainer": "supervised(model, optimizer, loss_fn), or Engine(step)",
    "create_supervised_trainer": "supervised(model, optimizer, loss_fn)",
}


def unknown(owner: str, name: str, known: Iterable[str], words: Mapping[str, str]) -> Exception:
    """The error for an attribute that does not exist, with the one that was probably meant.

    Args:
        owner: The object without the attribute.
        name: The attribute.
        known: The attributes that exist.
        words: By a name in other libraries: what to write here.

    >>> unknown("Events", "EPOCH_COMPLETE", ["EPOCH_COMPLETED", "SAVING"], {})
    AttributeError("Events has no attribute 'EPOCH_COMPLETE'; did you mean 'EPOCH_COMPLETED'?")
    >>> unknown("an Engine", "fit", ["run"], {"fit": "engine.run(loader, max_epochs=...)"})
    AttributeError("an Engine has no attribute 'fit'; write engine.run(loader, max_epochs=...)")
    """
    # Without obj=..., Python itself would add a second suggestion.
    given = f"{owner} has no attribute {name!r}"
    return AttributeError(given + advice(name, known, words), name=name, obj=None)


def advice(name: str, known: Iterable[str], words: Mapping[str, str]) -> str:
    """The suggestion for a wrong name, to append to a sentence; empty if there is none."""
    if name.startswith("_"):  # libraries look for such names, and handle the error themselves
        return ""
    if name in words:
        return f"; write {words[name]}"
    from difflib import get_close_matches  # here, to keep imports fast

    shown = {each.lower(): each for each in known if not each.startswith("_")}
    found = get_close_matches(name.lower(), shown, n=1, cutoff=0.7)
    return f"; did you mean {shown[found[0]]!r}?" if found else ""


def few(names: Iterable[Any], most: int = 5) -> str:
    """The first names or numbers, of a set the smallest, for a message; "none" if there are none.

    >>> few(["b", "a"]), few({3, 1, 2}, most=2), few([])
    ('b, a', '1, 2, ...', 'none')
    """
    ordered = sorted(names) if isinstance(names, set) else names
    first = [*islice(map(str, ordered), most + 1)]
    return ", ".join(first if len(first) <= most else [*first[:most], "..."]) or "none"


def listed(names: Iterable[str]) -> str:
    """All names, quoted and sorted, for a message; "none" if there are none."""
    return ", ".join(sorted(map(repr, names))) or "none"
