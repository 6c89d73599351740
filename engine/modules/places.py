"""Where modules have their tensors: looked up by module and name, and so those of this moment.

A forward pass may assign a buffer anew (`self.mean = ...`), and a script a parameter. A list of
tensors, kept from step to step, would then hold what no module uses any more.
"""

# pyright: reportPrivateUsage=false, reportOptionalMemberAccess=false
# torch's modules have no public tables of their tensors, and the setters are slow.

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from .tensors import local, moved
from .wrappers import plain_names

Place = tuple[dict[str, Any], str]
"""The dict in which a module has a parameter or buffer, and its name there."""
PLAIN = (int, float, bool, str, type(None))


def places_of(module: Module) -> dict[str, Place]:
    """By plain name: where a module has each parameter and buffer, also those that are None yet.

    >>> holder, name = places_of(torch.nn.Linear(2, 1))["weight"]
    >>> holder[name].shape
    torch.Size([1, 2])
    """
    found: dict[str, Place] = {}
    for path, each in module.named_modules():
        for holder in (each._parameters, each._buffers):
            found |= {f"{path}.{name}".lstrip("."): (holder, name) for name in holder}
    names = plain_names(module, found)
    return {names[name]: place for name, place in found.items()}


def tensor_at(place: Place) -> Any:
    """What is there now; None if nothing is."""
    holder, name = place
    return holder[name]


class ModuleTree:
    """The modules inside of others, and whether they are the same and hold as many tensors."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.modules: list[Module] = [
            *{id(m): m for outer in modules for m in outer.modules()}.values()
        ]
        self._children = [each._modules for each in self.modules]
        self._known = [dict(each) for each in self._children]
        self._holders = [held for m in self.modules for held in (m._parameters, m._buffers)]
        self._sizes = [*map(len, self._holders)]

    def are_same(self) -> bool:
        """True unless a module or a tensor has come or gone; it costs no call for a module."""
        return self._children == self._known and [*map(len, self._holders)] == self._sizes


class Buffers:
    """Buffers as they are at a look, to be put back: those changed in place, and those assigned.

    With `settings`, if one was assigned or resized, as a table that a forward pass makes longer,
    plain attributes of its module are put back with it, such as the table's length.

    >>> norm = torch.nn.BatchNorm1d(1)
    >>> before = Buffers([norm])
    >>> norm.running_mean = torch.ones(3)
    >>> before.put_back()
    >>> norm.running_mean
    tensor([0.])
    """

    def __init__(self, modules: Iterable[Module], *, settings: bool = False) -> None:
        self._outer, self._settings = [*modules], settings
        self._begin()
        self.keep()

    def _begin(self) -> None:
        self._tree = ModuleTree(self._outer)
        self._kept: list[tuple[Module, dict[str, Any], dict[str, Any]]] = []
        for each in self._tree.modules:
            if each._buffers:
                plain = {n: v for n, v in vars(each).items() if type(v) in PLAIN}
                self._kept.append((each, plain if self._settings else {}, {}))

    @torch.no_grad()
    def keep(self, is_spoilt: Tensor | None = None) -> None:
        """Copy the buffers, but keep earlier copies where `is_spoilt`, which is on the device."""
        if not self._tree.are_same():
            self._begin()
        for module, _, copies in self._kept:
            for name, now in module._buffers.items():
                _, copy = copies.get(name, (None, None))
                if now is None or is_lazy(now):
                    copies[name] = (now, None)
                elif copy is not None and (copy.shape, copy.dtype) == (now.shape, now.dtype):
                    if is_spoilt is None:
                        copy.copy_(now)
                    else:
                        copy.copy_(torch.where(moved(is_spoilt, copy.device), copy, now))
                    copies[name] = (now, copy)
                elif name not in copies or is_spoilt is None or not bool(is_spoilt):
                    copies[name] = (now, now.detach().clone())

    def put_back(self) -> None:
        """Put them back as they were."""
        for module, plain, copies in self._kept:
            for name, (before, copy) in copies.items():
                now, module._buffers[name] = module._buffers.get(name), before
                if now is not before or (copy is not None and now.shape != copy.shape):
                    vars(module).update(plain)
                if copy is not None:
                    set_in_place(before, copy)


def set_in_place(into: Any, value: Tensor) -> None:
    """Set a tensor, which stays the same object, to a value of any shape."""
    # By .data, so that an earlier recorded graph stays valid for its backward pass.
    if is_lazy(into):
        into.materialize(value.shape)
    own, given = local(into), local(value)
    if own.shape == given.shape:  # of a DTensor, the value may be this rank's part alone
        own.data.copy_(given.data)
    else:
        into.data = value.detach().to(into, copy=True)
