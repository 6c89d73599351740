"""From a batch to the arguments of a model, and from the model's output to a loss."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module

from ..checks import type_and_shape
from ..modules import unwrap
from ..outputs import part_of

PAIR = (tuple, list)
LABELS = "labels"
"""The name of the target among named inputs, as in Hugging Face's data."""


def pair_of(batch: Any) -> tuple[Any, Any]:
    """Input and target of a batch: a pair, or named inputs with their labels.

    A batch that is neither has an input and no target.

    >>> pair_of({"input_ids": [5, 7], "labels": [7, 5]})
    ({'input_ids': [5, 7]}, [7, 5])
    >>> pair_of([1.0])
    (1.0, None)
    """
    if isinstance(batch, PAIR):
        if len(batch) == 2:
            return batch  # type: ignore[return-value]  # a list of two will do
        if len(batch) == 1:
            return batch[0], None
        raise TypeError(
            f"supervised() got a batch that is a {type(batch).__name__} of {len(batch)}; it needs "
            "a pair of input and target. Give prepare_batch=, a function that makes one of a "
            "batch: lambda batch: ((batch[0], batch[1]), batch[2]) for a model of two inputs"
        )
    if isinstance(batch, Mapping):
        return {n: each for n, each in batch.items() if n != LABELS}, labels_in(batch)
    return batch, None


def with_labels(batch: Any) -> tuple[Any, Any]:
    """Like `pair_of`, for a model that computes its own loss: named inputs keep their labels."""
    return (dict(batch), None) if isinstance(batch, Mapping) else pair_of(batch)


def labels_in(batch: Any) -> Any:
    """The labels among named inputs; None if there are none."""
    return batch.get(LABELS) if isinstance(batch, Mapping) else None


def arguments(input: Any) -> tuple[Any, Mapping[str, Any]]:
    """The arguments of a model for this input: by name, in order, or the input itself.

    >>> arguments({"image": 1, "text": 2}), arguments([1, 2]), arguments(1)
    (((), {'image': 1, 'text': 2}), ([1, 2], {}), ((1,), {}))
    """
    if isinstance(input, Mapping):
        return (), input
    return (input, {}) if type(input) in PAIR else ((input,), {})  # a named tuple is one input


def note_names(error: TypeError, model: Module, named: Mapping[str, Any]) -> None:
    """Note in an error which of the named inputs the model does not take."""
    plain = unwrap(model)
    taken = inspect.signature(plain.forward).parameters
    has_any = any(each.kind is each.VAR_KEYWORD for each in taken.values())
    if has_any or not (unknown := [name for name in named if name not in taken]):
        return
    error.add_note(
        f"supervised() gives the model each value of the batch by its name, and "
        f"{type(plain).__name__}.forward takes {', '.join(taken)}, without "
        f"{', '.join(map(repr, unknown))}; leave them out by prepare_batch=, a function that makes "
        "a pair of named inputs and target of a batch"
    )


def note_loss(error: RuntimeError, made: Any, target: Any) -> None:
    """Note in an error of the loss function what it was given."""
    given = f"a prediction {type_and_shape(made)} and a target {type_and_shape(target)}"
    error.add_note(f"in loss_fn, given {given}")


def own_loss(output: Any, target: Any) -> Tensor | None:
    """The loss that the model has computed itself."""
    return part_of(output, "loss")  # type: ignore[no-any-return]


def no_loss(output: Any, target: Any) -> None:
    """The loss function of a forward pass that needs only the output."""


NEEDS_TARGET = (TypeError, AttributeError, AssertionError, ValueError)
"""The exceptions that a loss function may raise if the target is None."""


def refuse_lack(error: Exception, input: Any) -> None:
    """Explain an error in training that comes from a batch without a target.

    Raises:
        TypeError: The loss function has met None in the place of the target.
    """
    named = f" with {', '.join(map(repr, input))}" if isinstance(input, Mapping) else ""
    what = (
        f"supervised() got a batch to train on that is a {type(input).__name__}{named}, without a "
        "target; it needs 'labels' beside named inputs, or a pair of input and target. Give "
        "prepare_batch=, a function that makes a pair of a batch; or, for a loss of the output "
        "alone, a loss_fn that takes no notice of None: lambda output, _: ..."
    )
    if "NoneType" in str(error):
        raise TypeError(what) from error
    error.add_note(what)


def lacks_loss(output: Any) -> ValueError:
    """The error for an output without a loss, if the model has to compute its loss."""
    named = f" with {', '.join(map(repr, output))}" if isinstance(output, Mapping) else ""
    return ValueError(
        f"supervised() got no loss_fn, so the model computes the loss; it returned a "
        f"{type(output).__name__}{named}, without a 'loss'. Give loss_fn=; or, if it is a model of "
        "Hugging Face's, batches with 'labels'"
    )
