"""Suggestions for names and arguments that do not exist, also for names of other libraries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

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
# What to write for arguments of other libraries. A line "when=..." is for calls that have `when`.
_ARGUMENTS = {
    "max_epochs=": "epoch epochs max_epoch n_epochs num_epochs num_train_epochs",
    "max_iterations=": "iterations max_iter max_iters n_iterations num_iterations",
    "max_steps=": "num_steps n_steps num_training_steps steps total_steps train_steps",
    "max_batches=": "fast_dev_run limit_train_batches overfit_batches",
    "epoch_length=": "limit_val_batches max_batches n_batches num_batches steps steps_per_epoch",
    "accumulate=": "accumulate_grad_batches accumulation_steps grad_accumulation_steps "
    "gradient_accumulation_steps grad_accum",
    "optimizer=": "opt optim optimiser",
    "loss_fn=": "criterion loss loss_function",
    'precision="bf16"': "amp autocast bf16 dtype fp16 mixed_precision use_amp",
    "when=Events.EPOCH_COMPLETED(every=2)": "epochs event event_filter event_name every "
    "every_n_epochs every_n_iterations every_n_steps every_n_train_steps frequency interval "
    "log_every log_every_n_steps log_interval save_every save_freq save_interval steps",
    'keep=latest(3) | best(1, "val/loss", mode="min")': "max_to_keep metric mode monitor n_saved "
    "save_best_only save_last save_top_k save_total_limit score_function score_name total_limit",
    "directory=": "checkpoint_dir default_root_dir dir dirname dirpath filepath folder log_dir "
    "logdir path save_dir save_path",
    "path=": "directory file filename filepath",
    "data=": "dataloader loader train_data train_dataloader train_dataloaders train_loader",
    "patience=": "num_bad_epochs wait",
    "min_delta=": "delta threshold tolerance",
    "metric=": "monitor metric_name quantity",
    "decay=": "alpha beta ema_decay momentum tau",
    "max_norm=": "clip_norm gradient_clip_val max_grad_norm",
    "every=5": "each n",
    "where=": "condition event_filter filter predicate",
    "engine.add(handler)": "callback callbacks handler handlers hooks plugins",
    "engine.add(Checkpoint(directory, resume=True))": "checkpoint checkpoint_dir ckpt_path "
    "resume resume_from resume_from_checkpoint start_epoch initial_epoch",
    "engine.add(Validate(val_loader))": "check_val_every_n_epoch eval_data eval_dataset "
    "eval_loader eval_steps val_check_interval val_data val_dataloaders val_loader valid_loader "
    "validation_data",
    'engine.add(Metrics({"accuracy": metric}))': "compute_metrics metrics",
    "engine.add(LRSchedule(scheduler))": "lr_scheduler schedule scheduler",
    "engine.add(ClipGradNorm(1.0))": "clip_grad clip_grad_norm clip grad_clip gradient_clip_val "
    "max_grad_norm max_norm",
    "engine.add(EarlyStopping(metric, patience=3))": "early_stopping patience",
    "engine.add(TensorBoard(directory))": "log_dir logger loggers report_to",
    "engine.add(ProgressBar())": "enable_progress_bar pbar progress_bar verbose",
    "seed_everything(seed) before the run": "random_state seed",
    "DataLoader(dataset, batch_size=32, shuffle=True)": "batch_size num_workers shuffle",
    "engine.run(loader, max_epochs=3)": "dataloader dataset loader max_epochs max_steps train_data "
    "train_dataloader train_dataloaders train_loader",
    "supervised(..., accumulate=4), or Update(optimizer, accumulate=4)": "accumulate "
    "accumulate_grad_batches accumulation_steps gradient_accumulation_steps",
    'supervised(model, optimizer, loss_fn, precision="bf16")': "amp bf16 fp16 mixed_precision "
    "precision",
    'supervised(model, optimizer, loss_fn, device="cuda")': "accelerator device devices gpus",
    "torch.optim.SGD(model.parameters(), lr=0.1)": "lr learning_rate weight_decay",
    'Engine(step, objects={"model": model, "optimizer": optimizer})': "criterion loss_fn model "
    "models objects optimizer optimizers to_save",
}
# A right call, for one with too many arguments or too few.
_CALLS = {
    "Engine": 'Engine(step, objects={"model": model, "optimizer": optimizer}), with '
    "step(state, batch)",
    "Engine.add": "engine.add(handler), or @engine.on(event) above a function",
    "Engine.evaluate": "engine.evaluate(loader), or engine.evaluate(loader, epoch_length=3) for "
    "three batches of it",
    "Engine.on": "@engine.on(event) above the function, or engine.on(event)(function)",
    "Engine.off": "engine.off(function), which takes it off every event",
    "Engine.run": "engine.run(loader, max_epochs=3)",
    "Engine.simulate": "engine.simulate(max_epochs=2, epoch_length=5)",
    "EventEnum": "Events.EPOCH_COMPLETED(every=5), (at=5) or (where=lambda state: ...)",
    "Checkpoint": 'Checkpoint("runs/name", resume=True)',
    "EarlyStopping": 'EarlyStopping("val/loss", patience=3)',
    "Metrics": 'Metrics({"accuracy": metric})',
    "RestoreBest": 'RestoreBest("val/loss")',
    "Update": "Update(optimizer, accumulate=4)",
    "best": 'best(1, "val/loss", mode="min")',
    "every": "every(1000)",
    "latest": "latest(3)",
    "predict": 'predict(engine, loader, "predictions")',
    "supervised": "supervised(model, optimizer, loss_fn, accumulate=4)",
}


def for_users(thing: Any) -> Any:
    """A class or function that explains wrong arguments to users; other things unchanged."""
    if not getattr(thing, "__module__", "").startswith("camshaft."):
        return thing
    made = vars(thing).get("__init__") if isinstance(thing, type) else None
    if isinstance(made, FunctionType) and not hasattr(made, "__wrapped__"):
        thing.__init__ = taught(made)
    return taught(thing) if isinstance(thing, FunctionType) and thing.__name__ in _CALLS else thing


def taught(function: Function) -> Function:
    """A function whose calls with wrong arguments say what to write.

    Errors that the function itself raises stay unchanged.

    >>> @taught
    ... def train(data, *, max_epochs=1):
    ...     pass
    >>> train([], epochs=3)
    Traceback (most recent call last):
    ...
    TypeError: train() has no argument 'epochs'; write max_epochs=
    """

    @wraps(function)
    def explained(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # the error comes from inside the function
            message = _wrong_call(function, args, kwargs) or str(error)
        raise TypeError(message)

    return explained  # type: ignore[return-value]


def _wrong_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The message about a call's wrong arguments; empty if the mistake is unknown."""
    name = function.__qualname__.removesuffix(".__init__").removesuffix(".__call__")
    usage = f"; write {_CALLS[name]}" if name in _CALLS else ""
    given = f"{repr(args[0]) if name == 'EventEnum' else name.replace('Engine.', 'engine.')}()"
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = inspect.signature(function).parameters.values()
    known = {each.name: each for each in own if each.kind not in several}
    is_method = next(iter(known), "") == "self"
    places = [each for each in known.values() if each.kind is not each.KEYWORD_ONLY]
    if odd := [each for each in kwargs if each not in known]:
        return "; ".join(_odd(given, each, [*known][is_method:]) for each in odd)
    if len(args) > len(places):
        count = len(places) - is_method
        by_name = ", ".join(f"{each}=" for each in known if known[each] not in places)
        return (
            f"{given} takes {count or 'no'} positional argument{'s' * (count != 1)}, and got "
            f"{len(args) - is_method}{usage or f'; give others by name: {by_name}'}"
        )
    given_names = {each.name for each in places[: len(args)]} | kwargs.keys()
    needed = {key for key, each in known.items() if each.default is each.empty}
    lacking = [key for key in known if key in needed - given_names]
    return f"{given} lacks {' and '.join(lacking)}{usage}" if lacking else ""


def _odd(given: str, name: str, known: list[str]) -> str:
    """The message about one argument that a function does not have."""
    for line, words in _ARGUMENTS.items():
        argument, is_one, _ = line.partition("=")
        is_own = argument in known or not (is_one and argument.isidentifier())
        if is_own and name in words.split():
            return f"{given} has no argument {name!r}; write {line}"
    meant = advice(name, known, {}) or f"; it has {', '.join(known) or 'none'}"
    return f"{given} has no argument {name!r}{meant}"


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


def few(names: Iterable[str], most: int = 5) -> str:
    """The first names, for a message; "none" if there are none.

    >>> few(["b", "a"]), few("abc", most=2), few([])
    ('b, a', 'a, b, ...', 'none')
    """
    listed = [*names]
    return ", ".join([*listed[:most], *(["..."] if len(listed) > most else [])]) or "none"
