"""Notes that are added to exceptions, and warnings at the line of the script."""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

from .names import OF_STATES, advice
from .signals import ROOMS
from .state import State

LESS_MEMORY = (
    "The same step takes less memory with parts of a batch at a time, supervised(..., "
    "split=8) or smaller batches and accumulate=; with checkpoint_activations(model, ...); "
    'or with precision="bf16". MemorySnapshot(directory) records what is in memory.'
)
OF_A_WORKER = re.compile(r"DataLoader worker \(pid.*(signal: Killed|exited unexpectedly)")
SMALLER_WORKERS = (
    "A worker that is killed has most often run out of memory; the log of the kernel (dmesg) says "
    "so. Less is needed with fewer workers or batches in advance, DataLoader(num_workers=..., "
    "prefetch_factor=...), and with a data set that holds arrays instead of many Python objects, "
    "which each worker copies. With Checkpoint(..., resume=True), start the script again: the run "
    "goes on from its last save."
)
OPTIMIZE_IN_TRAINING = (
    "An evaluation records no gradients: write `if state.training:` before the backward pass and "
    "the step, or give the engine a step of its own for that: Engine(..., evaluate=...)"
)
OF_A_STEP: dict[str, tuple[str, ...]] = {
    "does not require grad and does not have a grad_fn": (
        "The loss depends on no trainable parameter: look for .detach(), .item() or "
        "torch.no_grad() between the model and the loss, and for a model that is all frozen",
        OPTIMIZE_IN_TRAINING,
    ),
    "Trying to backward through the graph a second time": (
        "An Update makes the backward pass itself: leave loss.backward() out, and call it once for "
        "each loss. What is kept from one batch to the next, such as a hidden state, has to be "
        "detached. To use a graph twice on purpose: update(state, loss, retain_graph=True)",
        OPTIMIZE_IN_TRAINING,
    ),
    "modified by an inplace operation": (
        "A step changes weights in place, so that a graph from before it cannot be used after it: "
        "compute the second loss after the first update, or update(state, loss_a + loss_b)",
        OPTIMIZE_IN_TRAINING,
    ),
    "during selective activation checkpoint has been mutated": (
        "A result that checkpoint_activations(keep=...) keeps was changed in place afterwards: "
        "write relu(x) for relu_(x) and for inplace=True, x = x + y for x += y, or leave keep= out",
        OPTIMIZE_IN_TRAINING,
    ),
    "Expected more than 1 value per channel when training": (
        "A batch norm got a single sample, as the last batch of an epoch may have: "
        "DataLoader(..., drop_last=True) leaves it out, and other samples in each epoch if it "
        "shuffles",
        "An evaluation puts modules in engine.objects into evaluation mode: name this one there",
    ),
    "is out of bounds.": (
        "Classes are counted from 0, up to the number of scores less 1. Labels that begin at 1 "
        "need target - 1; what is not to count needs ignore_index=",
    ),
    "index out of range in self": (
        "An embedding got an index that is below 0, or not below its num_embeddings: compare "
        "batch.max() with the size of the vocabulary, also after tokens were added",
    ),
    "_loss(): argument 'input' (position 1) must be Tensor, not": (
        "The loss got all that the model returned. Give it the part that it is of, as "
        "lambda output, target: loss_fn(output.logits, target), or output[0] of a tuple",
    ),
    "requires closure": (
        "This optimizer computes the loss again in its step: give the Update a function that does, "
        "in a step of your own, update(state, loss, closure=lambda: loss_fn(model(x), y)), which "
        "makes no backward pass",
        OPTIMIZE_IN_TRAINING,
    ),
    "'float' object has no attribute 'backward'": (
        "A loss has to be a tensor: leave out .item() and float()",
        OPTIMIZE_IN_TRAINING,
    ),
}
"""By message of torch: what to do in training, and in an evaluation if it is something else."""
OF_A_STATE = re.compile(r"'State' object has no attribute '(\w+)'(?: and no __dict__.*)?$")
OWN_ATTRIBUTE = (
    "A state takes no attributes of your own, since a checkpoint would not hold them. What a "
    "function keeps from batch to batch is its memory: state.recall(train_step, Memory).{name}, "
    "where Memory is a dataclass. What is to be logged is a metric: state.metrics[{name!r}]"
)


def explain(error: BaseException, where: str, state: State[Any, Any]) -> None:
    """Add a note to an exception: where in the run it was raised; once for each exception."""
    if state.control.error is not error:
        state.control.error = error
        in_step = where.startswith("in the process function") or not hasattr(error, "__notes__")
        error.add_note(f"{where}, {place(state)}")
        if type(error).__name__ == "OutOfMemoryError":  # torch's; this file does not import torch
            error.add_note(LESS_MEMORY)
        advise_on_workers(error)
        if isinstance(error, AttributeError) and (missing := OF_A_STATE.match(str(error))):
            error.add_note(_advice_on(missing[1]))
        for said, advice_on_it in OF_A_STEP.items():
            if said in str(error) and in_step:  # and not in an evaluation that a handler makes
                error.add_note(advice_on_it[0 if state.training else -1])


def advise_on_workers(error: BaseException) -> None:
    """Add advice about a killed worker, if any error in the chain is about a worker.

    A loader's signal handler may raise at any point, also while another error is handled. Then the
    other error ends the run, and the worker's error is its note or its context.
    """
    said: list[str] = []
    one: BaseException | None = error
    while one is not None and SMALLER_WORKERS not in said:
        said += [str(one), *getattr(one, "__notes__", ())]
        one = one.__cause__ or one.__context__
    if SMALLER_WORKERS not in said and OF_A_WORKER.search("\n".join(said)):
        error.add_note(SMALLER_WORKERS)


def _advice_on(name: str) -> str:
    """What to write instead of an attribute that a state lacks.

    `State` has no `__getattr__` for this, which would slow down every read of an attribute.
    """
    own = "" if name in OF_STATES else f". {OWN_ATTRIBUTE.format(name=name)}"
    return f"a State has no attribute {name!r}{advice(name, dir(State), OF_STATES)}{own}"


def place(state: State[Any, Any]) -> str:
    """The kind of the run, its epoch and its iteration."""
    kind = "" if state.training else "evaluation, "
    return f"{kind}epoch {state.epoch}, iteration {state.iteration}"


def warn(message: str) -> None:
    """Warn of a mistake in a script, at the line of the script that called Camshaft."""
    frame, level = sys._getframe(1), 2  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ROOMS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
