"""Where modules have their tensors: looked up by module and name, and so those of this moment.

A forward pass may assign a buffer anew (`self.mean = ...`), and a script a parameter. A list of
tensors, kept from step to step, would then hold what no module uses any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

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


class Parts:
    """The modules inside of others, and whether they are the same and hold as many tensors."""

    def __init__(self, modules: Iterable[Module]) -> None:
        inside = {id(each): each for outer in modules for each in outer.modules()}
        self.modules: list[Module] = [*inside.values()]
        self._children = [each._modules for each in self.modules]
        self._known = [dict(each) for each in self._children]
        self._holders = [held for m in self.modules for held in (m._parameters, m._buffers)]
        self._sizes = [*map(len, self._holders)]

    def are_same(self) -> bool:
        """True unless a module or a tensor has come or gone; it costs no call for a module."""
        return self._children == self._known and [*map(len, self._holders)] == self._sizes


class Buffers:
    """Buffers as they were at the last look: a later `put_back` undoes what a forward pass changed.

    It may have changed them in place, assigned others, of another shape too, or registered some.

    >>> norm = torch.nn.BatchNorm1d(1)
    >>> before = Buffers([norm])
    >>> norm.running_mean = torch.ones(3)
    >>> before.put_back()
    >>> norm.running_mean
    tensor([0.])
    """

    def __init__(self, modules: Iterable[Module]) -> None:
        self._outer = [*modules]
        self._begin()
        self.keep()

    def _begin(self) -> None:
        self._parts = Parts(self._outer)
        self._kept: list[tuple[Module, dict[str, Any], dict[str, Any]]] = [
            (each, {}, {}) for each in self._parts.modules if each._buffers
        ]

    @torch.no_grad()
    def keep(self, is_spoilt: Tensor | None = None) -> None:
        """Copy the buffers, but keep earlier copies where `is_spoilt`, which is on the device."""
        if not self._parts.are_same():
            self._begin()
        for module, copies, settings in self._kept:
            is_new = False
            for name, now in module._buffers.items():
                _, copy = copies.get(name, (None, None))
                if now is None or is_lazy(now):
                    copies[name] = (now, None)
                elif copy is None or copy.shape != now.shape or copy.dtype != now.dtype:
                    if name not in copies or is_spoilt is None or not bool(is_spoilt):
                        copies[name] = (now, now.detach().clone())
                        is_new = True
                else:
                    value = now if is_spoilt is None else _where(is_spoilt, copy, now)
                    copies[name] = (now, copy.copy_(value))
            if is_new:
                settings |= {n: v for n, v in vars(module).items() if type(v) in PLAIN}

    @torch.no_grad()
    def put_back(self, *, settings: bool = False) -> None:
        """Put them back as they were.

        Args:
            settings: True to put plain attributes of a module back if one of its buffers has
                another shape, such as the length of a table that has grown.
        """
        known = {id(module): copies for module, copies, _ in self._kept}
        for module in self._parts.modules:
            copies = known.get(id(module), {})
            for name in module._buffers.keys() - copies.keys():
                del module._buffers[name]
        for module, copies, plain in self._kept:
            for name, (before, copy) in copies.items():
                now = module._buffers.get(name)
                module._buffers[name] = before
                if copy is None:
                    continue
                if settings and (now is None or now.shape != copy.shape):
                    vars(module).update(plain)
                if before.shape == copy.shape:
                    before.data.copy_(copy)
                else:  # resized in place
                    before.data = copy.clone()


def _where(is_spoilt: Tensor, copy: Tensor, now: Tensor) -> Tensor:
    return torch.where(is_spoilt.to(copy.device, non_blocking=True), copy, now)
