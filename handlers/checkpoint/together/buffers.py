"""Buffers that differ between ranks, such as the running means of a batch norm under DDP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ....engine import ranks
from ....engine.modules import plain_names, unwrap
from ..frozen import checksum
from ..sharding import is_sharded
from ..weights import weights

Buffers = dict[str, dict[str, Tensor]]
"""By object and plain name."""


def buffers_of(objects: Mapping[str, Any]) -> Buffers:
    """The saved buffers of modules, without distributed ones, which belong to no single rank."""
    found: Buffers = {}
    for name, each in objects.items():
        if not isinstance(each, Module):
            continue
        inner = unwrap(each)
        held = dict(inner.named_buffers(remove_duplicate=False))
        if not held:
            continue
        names, saved = plain_names(inner, held), weights(each)
        own = {names[key]: buffer for key, buffer in held.items()}
        own = {key: own[key] for key in own if key in saved and not is_sharded(own[key])}
        if own:
            found[name] = own
    return found


def buffers_of_own(objects: Mapping[str, Any]) -> Buffers:
    """The buffers of this rank that differ from rank 0's; all ranks have to call this.

    Their checksums are compared, in one message.
    """
    held = buffers_of(objects)
    if not held:
        return {}
    places = [(name, key) for name, each in held.items() for key in each]
    own = torch.stack([checksum(held[name][key]) for name, key in places])
    first = own.clone()
    ranks.share([first])
    differs = (own != first).tolist()
    found: Buffers = {}
    for (name, key), is_own in zip(places, differs, strict=True):
        if is_own:
            found.setdefault(name, {})[key] = held[name][key]
    return found
