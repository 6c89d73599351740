"""What a loss over tokens is a mean over."""

from __future__ import annotations

from torch import Tensor

from ..outputs import Output

IGNORED = -100
"""The label of a target that counts for nothing, in torch's losses and in Hugging Face's models."""


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
