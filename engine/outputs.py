"""What a process function returned: its parts, by the names that they may have, and its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

NAMES = {
    "loss": ("loss",),
    "prediction": ("prediction", "logits"),
    "target": ("target", "labels"),
}
"""By part: what it may be called, as here or as in Hugging Face's models."""
IGNORED = -100
"""The label of a target that counts for nothing, in torch's losses and in Hugging Face's models."""


class Output(NamedTuple):
    """What a supervised engine makes of a batch; its tensors record no gradients."""

    loss: Any
    """A tensor, the mean; None if there is no loss for this batch."""
    prediction: Any
    """What the model made, or its `logits`."""
    target: Any
    """None if the batch has none."""
    weight: Any = None
    """How many targets the loss is a mean over; None if it is over the samples."""
    samples: int | None = None
    """The samples of a batch without a target, by its input; None to count by the target."""
    parts: Mapping[str, Any] | None = None
    """The parts of the loss by name, means as it is; None if `loss_fn` gave a loss alone."""


def part_of(output: Any, name: str, default: Any = None) -> Any:
    """The `"loss"`, `"prediction"` or `"target"` of an output, by key or by attribute.

    So mappings, named tuples, dataclasses and any other objects serve alike.

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
    """The same without the first target of each row, which a model of next tokens cannot predict.

    The causal language models of Hugging Face shift their labels so.

    >>> import torch
    >>> count_next_tokens(Output(None, None, torch.tensor([[5, 7, -100], [8, 9, 6]])))
    tensor(3)
    """
    return (output.target[..., 1:] != IGNORED).sum()  # type: ignore[no-any-return]
