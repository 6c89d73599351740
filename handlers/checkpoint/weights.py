"""A module's weights under plain names, however the module is wrapped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from ...engine.supervised import unwrap


def weights(module: Module) -> dict[str, Any]:
    """The `state_dict` of a module, without the prefixes of `torch.compile` and DDP.

    >>> from torch.nn import DataParallel, Linear
    >>> list(weights(DataParallel(Linear(2, 1))))
    ['weight', 'bias']
    """
    return {_plain(name): value for name, value in unwrap(module).state_dict().items()}


def load_weights(module: Module, saved: Mapping[str, Any]) -> None:
    """Load what `weights` gave, be the module wrapped now or not."""
    inner = unwrap(module)
    own = inner.state_dict()
    inner.load_state_dict({name: _put(own[name], saved[_plain(name)]) for name in own})


def _put(own: Any, saved: Any) -> Any:
    """Copy a weight to where it belongs at once, so that its source can go before the next one."""
    if not isinstance(own, Tensor) or not isinstance(saved, Tensor) or is_lazy(own):
        return saved
    if (own.shape, own.dtype) != (saved.shape, saved.dtype):
        return saved
    return own.copy_(saved)


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != "_orig_mod")
