"""Several optimizers of one loss, in the form of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch.optim import Optimizer

from ..compiling import CompiledStep
from ..modules import optimizers_in, parameters_of, plain_optimizer, refuse_scaling
from .gradients import step_by
from .window import needs_closure

Given = Optimizer | list[Any] | tuple[Any, ...] | Mapping[str, Optimizer]
"""One optimizer, or several of one loss: in their order, or by the names of objects."""


class Optimizers(Optimizer):
    """Several optimizers whose parameters make one step: windows, norms and scalers see one.

    It has no state and no settings of its own: the groups are those of the optimizers, each of
    which is saved, scheduled and found by itself.

    >>> from torch import nn
    >>> import torch
    >>> first, second = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)
    >>> made = [torch.optim.SGD(first.parameters()), torch.optim.AdamW(second.parameters())]
    >>> both = Optimizers(made)
    >>> list(both.named), len(both.param_groups)
    (['optimizer.0', 'optimizer.1'], 2)
    """

    def __init__(self, given: Iterable[Optimizer] | Mapping[str, Optimizer]) -> None:
        """Put them together; what torch's own `__init__` makes is a state, and this has none.

        Raises:
            TypeError: One of them is no optimizer, or its name is no string.
            ValueError: There is none, one needs a closure, or two update the same parameter.
        """
        if isinstance(given, Mapping):
            named = dict(given)
        else:
            named = {f"optimizer.{number}": each for number, each in enumerate(given)}
        self.named: dict[str, Optimizer] = {}
        """Each by its name among the objects of an engine."""
        self.defaults: dict[str, Any] = {}  # torch's schedulers look for "momentum" in it
        if not named:
            raise ValueError("no optimizer was given; a list or a dict of them needs at least one")
        owners = dict[int, str]()
        for name, each in named.items():
            if not isinstance(name, str) or not isinstance(each, Optimizer):
                raise TypeError(
                    f"optimizer {name!r} is a {type(each).__name__}; several optimizers need to be "
                    "torch.optim.Optimizers, "
                    'in a list or by names: {"muon": muon, "adamw": adamw}'
                )
            refuse_scaling(each)
            plain = self.named[name] = plain_optimizer(each)
            if needs_closure(plain):
                raise ValueError(
                    f"{type(plain).__name__} evaluates the loss several times a step, which the "
                    "other optimizers of this loss would not know of: give it an Update of its own"
                )
            for parameter in parameters_of(plain):
                if (owner := owners.setdefault(id(parameter), name)) != name:
                    raise ValueError(
                        f"the optimizers {owner!r} and {name!r} update the same parameter of shape "
                        f"{tuple(parameter.shape)}, which would take two steps at once: give each "
                        "parameter to one of them"
                    )

    @property
    def together(self) -> list[Optimizer]:
        """The optimizers, in the order in which they step."""
        return [*self.named.values()]

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The groups of all of them, as they are now: loading an optimizer replaces its list."""
        return [group for each in self.named.values() for group in each.param_groups]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse a group, which belongs to one of them."""
        raise TypeError(
            "these are several optimizers: add the group to one of them, such as "
            f"engine.objects[{next(iter(self.named))!r}].add_param_group(...)"
        )

    def step(self) -> None:  # type: ignore[override]
        """Let each make its step, in their order."""
        for each in self.named.values():
            step_by(each)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Let each clear its gradients."""
        for each in self.named.values():
            each.zero_grad(set_to_none)

    def __repr__(self) -> str:
        kinds = (f"{name!r}: {type(each).__name__}" for name, each in self.named.items())
        return f"Optimizers({{{', '.join(kinds)}}})"


def one_of(given: Given) -> Optimizer:
    """The optimizer of an `Update`, without the wrapper of another library.

    Raises:
        TypeError: It is no optimizer.
    """
    if isinstance(given, list | tuple | Mapping):
        return Optimizers(given)
    if not isinstance(given, Optimizer):
        raise TypeError(
            f"Update got {given!r}; it needs a torch.optim.Optimizer, or a list of them"
        )
    refuse_scaling(given)
    plain: Optimizer = plain_optimizer(given)
    return plain


class CompiledSteps(CompiledStep):
    """The steps of several optimizers, each compiled by itself."""

    def __init__(self, optimizer: Optimizer, options: Mapping[str, Any]) -> None:
        super().__init__(optimizer, options)
        self._each = [CompiledStep(each, options) for each in optimizers_in(optimizer)]

    def step(self) -> None:
        """Take the step of each."""
        for each in self._each:
            each.step()
