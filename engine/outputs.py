"""The output of a process function: its parts, by their possible names, and its token counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

NAMES: dict[str, tuple[str, ...]] = {
    "loss": ("loss",),
    "prediction": ("prediction", "logits"),
    "target": ("target", "labels"),
}
"""By part: its possible names, here or in Hugging Face's models."""
IGNORED = -100
"""The label of a target that torch's losses and Hugging Face's models ignore."""


class Output(NamedTuple):
    """The output of a supervised engine for a batch; its tensors record no gradients."""

    loss: Any
    """A tensor, the mean; None if there is no loss for this batch."""
    prediction: Any
    """The model's output, or the `logits` in it."""
    target: Any
    """None if the batch has none."""
    weight: Any = None
    """The number of targets in the loss's mean; None if the mean is over the samples."""
    samples: int | None = None
    """The number of samples, from the input, if there is no target; None to count by the target."""
    parts: Mapping[str, Any] | None = None
    """The parts of the loss by name, means as it is; None if `loss_fn` gave a loss alone."""
    model_output: Any = None
    """What the model returned, which the prediction may be a part of; objects in it are None."""


def part_of(output: Any, name: str, default: Any = None) -> Any:
    """The `"loss"`, `"prediction"` or `"target"` of an output, by key or by attribute.

    So mappings, named tuples, dataclasses and other objects all work.

    >>> part_of(Output(0.5, "cat", "dog"), "target")
    'dog'
    >>> part_of({"logits": [0.1, 0.9], "labels": 1}, "prediction")
    [0.1, 0.9]
    >>> part_of([0.1, 0.9], "prediction", "none")
    'none'
    """
    for each in NAMES[name]:
        if isinstance(output, Mapping):
            if each in output:
                return output[each]
        elif hasattr(output, each):
            return getattr(output, each)
    return default


def count_tokens(output: Output) -> Tensor:
    """The number of targets that are not -100, for `supervised(..., weight=count_tokens)`.

    >>> import torch
    >>> count_tokens(Output(None, None, torch.tensor([[5, 7, -100], [8, 9, 6]])))
    tensor(5)
    """
    return (output.target != IGNORED).sum()  # type: ignore[no-any-return]


def count_next_tokens(output: Output) -> Tensor:
    """Like `count_tokens`, without the first target of each row, which has no prediction.

    Causal language models of Hugging Face shift their labels in this way.

    >>> import torch
    >>> count_next_tokens(Output(None, None, torch.tensor([[5, 7, -100], [8, 9, 6]])))
    tensor(3)
    """
    return (output.target[..., 1:] != IGNORED).sum()  # type: ignore[no-any-return]


COUNTS = (count_tokens, count_next_tokens)
"""The functions that count in an output, and not in a batch."""
