"""A module's weights under plain names, however the module is wrapped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel

from ...engine.modules import box_of, copy_part, inside, is_spread, local, plain_names, unwrap
from .directory import StoredTensor


def weights(
    module: Module, lent: Mapping[Module, Mapping[str, Tensor]] | None = None
) -> dict[str, Any]:
    """The `state_dict` of a module, under its names without wrappers.

    A module that holds another module's weights for a while, as in an evaluation of averages,
    gives its own, from `lent`.

    >>> from torch.nn import DataParallel, Linear
    >>> list(weights(DataParallel(Linear(2, 1))))
    ['weight', 'bias']
    """
    holder, inner = _holder(module), unwrap(module)
    state, own = holder.state_dict(), (lent or {}).get(inner, {})
    names, places = plain_names(holder, state), plain_names(inner, own)
    own = {places[name]: tensor for name, tensor in own.items()}
    return {names[name]: own.get(names[name], value) for name, value in state.items()}


def load_weights(module: Module, saved: Mapping[str, Any]) -> None:
    """Load what `weights` gave, or a part of it, whether or not the module is wrapped now.

    A weight in a file is copied from there to its place, without a tensor in between. Of a
    distributed weight, only this rank's shard is read.
    """
    holder = _holder(module)
    own = holder.state_dict()
    names = plain_names(holder, own)
    found = {name: plain for name, plain in names.items() if plain in saved}
    holder.load_state_dict(
        {n: _put(own[n], saved[found[n]]) if n in found else own[n] for n in own}
    )


def named_parameters_of(module: Module) -> dict[str, Tensor]:
    """The parameters by their plain names; those of tied weights under each."""
    inner = unwrap(module)
    named = dict(inner.named_parameters(remove_duplicate=False))
    names = plain_names(inner, named)
    return {names[name]: parameter for name, parameter in named.items()}


def _holder(module: Module) -> Module:
    """The outermost module with a state of its own; an average also has a counter."""
    while inside(module) in ("module", "_orig_mod", "_forward_module") and not isinstance(
        module, AveragedModel
    ):
        module = getattr(module, str(inside(module)))
    return module


def _put(own: Any, found: Any) -> Any:
    """Copy a weight to its place at once, so that the memory of its source is freed."""
    if isinstance(own, Tensor) and not is_lazy(own):
        if isinstance(found, Tensor) and (own.shape, own.dtype) == (found.shape, found.dtype):
            if own is not found:
                copy_part(local(own), local(found))  # both are in the same shards
            return own
        if isinstance(found, StoredTensor) and found.shape == tuple(own.shape):
            begin = [first for first, _ in box_of(own)] if is_spread(own) else None
            found.fill(local(own).data, begin)
            return own
    return found.read() if isinstance(found, StoredTensor) else found
