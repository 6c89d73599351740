"""Optimizers' states: what of them is not saved, and how they are put back."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .check import has_groups

OF_SCRIPT = (*(torch.dtype, torch.device, Enum, type, partial, FunctionType, BuiltinFunctionType),)
"""The kinds of settings that a script gives anew: they stay as the script has them."""


def state_of(optimizer: Optimizer) -> Any:
    """What is saved of an optimizer: its state, without the settings that a script gives anew."""
    state = optimizer.state_dict()
    if not has_groups(state):
        return state
    groups = state["param_groups"]
    plain = [{k: g[k] for k in g if not isinstance(g[k], OF_SCRIPT)} for g in groups]
    return {**state, "param_groups": plain}


def load_optimizer(optimizer: Any, saved: Mapping[str, Any]) -> None:
    """Put a state back; what the script gives anew, or has in two places, stays so.

    A state may hold its whole group, so that a schedule that sets the group's rate sets it there.
    """
    groups, held = getattr(optimizer, "param_groups", []), groups_in(optimizer)
    if has_groups(saved) and len(groups) == len(saved["param_groups"]):
        given = [{k: g[k] for k in g if isinstance(g[k], OF_SCRIPT)} for g in groups]
        pairs = zip(given, saved["param_groups"], strict=True)
        saved = {**saved, "param_groups": [{**own, **group} for own, group in pairs]}
        own = {k: v for k, v in optimizer.state.items() if isinstance(v, Tensor)}
        devices = {k: v.device for k, v in own.items() if isinstance(saved["state"].get(k), Tensor)}
        moved = {key: saved["state"][key].to(device) for key, device in devices.items()}
        saved["state"] = {**saved["state"], **moved}
    optimizer.load_state_dict(saved)
    for (parameter, key), number in held.items():
        optimizer.state[parameter][key] = optimizer.param_groups[number]


def groups_in(optimizer: Any) -> dict[tuple[Any, Any], int]:
    """By parameter and key: the groups that are values in the state, by their numbers."""
    numbers = {id(group): n for n, group in enumerate(getattr(optimizer, "param_groups", []))}
    return {
        (parameter, key): numbers[id(value)]
        for parameter, state in getattr(optimizer, "state", {}).items()
        if isinstance(state, dict)
        for key, value in state.items()
        if id(value) in numbers
    }
