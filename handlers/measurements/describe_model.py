"""A table of a model's parts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_map_only

from ...engine.modules import untouched, unwrap
from ..common import Cell, aligned, readable_size


def describe_model(model: Module, *inputs: Any, depth: int = 2) -> str:
    """A table of a model's parts: type, parameters, how many of these train, and output shapes.

    The numbers of a part include the parts inside; a parameter that two parts share counts in both,
    and once in the sum. With inputs the model is called once, in evaluation mode and without
    gradients, and is left as it was.

    Args:
        model: The model.
        inputs: What the model is called with, a mapping by name; without them there are no shapes.
        depth: The number of levels of parts inside parts.

    >>> from torch import nn, zeros
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> print(describe_model(model, zeros(3, 4)))
    part   type        parameters  trainable  output
    model  Sequential          58         58  (3, 2)
      0    Linear              40         40  (3, 8)
      1    ReLU                 0          0  (3, 8)
      2    Linear              18         18  (3, 2)
    58 parameters, 232 B; 58 of them train
    """
    model = unwrap(model)
    parts = [
        (name, part) for name, part in model.named_modules() if not name or name.count(".") < depth
    ]
    shapes = _shapes(model, [part for _, part in parts], inputs) if inputs else {}
    rows: list[list[Cell]] = [["part", "type", "parameters", "trainable", "output"]]
    for name, part in parts:
        level = f"{'  ' * (name.count('.') + 1)}{name.rpartition('.')[2]}" if name else "model"
        rows.append([level, type(part).__name__, *_counts(part), shapes.get(part, "")])
    if not inputs:
        rows = [row[:-1] for row in rows]
    count, training = _counts(model)
    size = readable_size(sum(each.nbytes for each in model.parameters()))
    total = f"{count:,} parameters, {size}; {training:,} of them train"
    return "\n".join([*aligned(rows), total])


def _counts(part: Module) -> tuple[int, int]:
    """The numbers of elements of all parameters and of the trainable parameters."""
    sizes = [(each.numel(), each.requires_grad) for each in part.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)


def _shapes(model: Module, parts: list[Module], inputs: tuple[Any, ...]) -> dict[Module, str]:
    """The shapes of what each part gives; of the last call, if it is called several times."""
    shapes: dict[Module, str] = {}

    def note(part: Module, _: Any, output: Any) -> None:
        shape = tree_map_only(Tensor, lambda tensor: tuple(tensor.shape), output)
        shapes[part] = str(shape)

    with ExitStack() as stack:
        stack.enter_context(untouched({"model": model}, None))
        for part in parts:
            stack.callback(part.register_forward_hook(note).remove)
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            model(**inputs[0])
        else:
            model(*inputs)
    return shapes
