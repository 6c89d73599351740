"""The weights of sharded modules (FSDP2's `fully_shard`, tensor parallelism), copied by parts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.parallel import DistributedDataParallel

from .. import ranks
from .boxes import box_of, slices
from .known import all_modules
from .tensors import is_spread, local, sample
from .wrappers import unwrap


def has_shards(module: Module) -> bool:
    """True for a module that holds parts of tensors, or that FSDP2 manages."""
    return any(map(is_spread, module.parameters())) or bool(fully_sharded([module]))


@torch.no_grad()
def copy_into(own: Tensor, value: Any) -> None:
    """Copy a tensor, whole or sharded in any way, into a tensor of the same shape.

    From a whole tensor, each rank reads only its own part, so `value` may be a slice of a file. A
    tensor that is sharded in another way is gathered first, so all ranks have to call this.
    """
    if is_alike(own, value):
        value = local(value)
    else:
        whole = value.full_tensor() if is_spread(value) else value
        value = whole[slices(box_of(own))] if is_spread(own) else whole
    copy_part(local(own), value)


def copy_part(into: Tensor, value: Tensor) -> None:
    """Copy values into a tensor of the same shape.

    Raises:
        ValueError: The shapes differ, so that torch would repeat values.
    """
    if into.numel() + value.numel() == 0:
        return
    if into.shape != value.shape:
        raise ValueError(
            f"this rank holds {tuple(into.shape)} of a tensor, and was given {tuple(value.shape)}"
        )
    into.data.copy_(value)


def is_alike(one: Any, other: Any) -> bool:
    """True if two tensors of the same shape are in the same parts on the same ranks."""
    if not is_spread(one) or not is_spread(other):
        return is_spread(one) == is_spread(other)
    is_one_way = one.device_mesh == other.device_mesh and one.placements == other.placements
    return bool(is_one_way and local(one).shape == local(other).shape)


def fully_sharded(objects: Iterable[object]) -> list[Any]:
    """The modules among objects, and inside them, to which FSDP2's `fully_shard` was applied."""
    kind = _fsdp()
    return [each for each in all_modules(objects) if isinstance(each, kind)] if kind else []


def sharded_in(module: Module) -> list[Any]:
    """The outermost modules of FSDP2 in a module: mostly the module itself."""
    if (kind := _fsdp()) is None:
        return []
    if isinstance(module, kind):
        return [module]
    return [each for child in module.children() for each in sharded_in(child)]


@dataclass(frozen=True)
class Averaging:
    """The averaging of some parameters' gradients over ranks, by a module around them."""

    kind: str
    """The class or function that the module was made by."""
    parameters: list[Tensor]
    ranks: set[int]
    """The ranks that average; others may hold further parts of the same tensors."""
    divisor: float
    """What the sum of the gradients is divided by: the number of these ranks, if not set."""
    is_twice: bool = False
    """True if some versions of torch, such as 2.13, divide by it twice."""


_KINDS = {torch.float32, torch.bfloat16}
"""The types of gradients for which the division is a part of FSDP2's message."""


def averaging(objects: Iterable[object]) -> Iterator[Averaging]:
    """How the modules among objects, and inside them, average gradients over ranks."""
    kind = _fsdp()
    for module in all_modules(objects):
        if isinstance(module, DistributedDataParallel):
            own = ranks.members(module.process_group)
            yield Averaging("DistributedDataParallel", [*module.parameters()], own, len(own))
        elif kind and isinstance(module, kind):
            for group in fsdp_groups(module):
                own = set(group.mesh_info.mesh.mesh.flatten().tolist())
                factor = group.gradient_divide_factor
                # Not its own list, which is stale after load_state_dict(assign=True).
                places = [each._module_info for each in group.fsdp_params]
                parameters = [getattr(each.module, each.param_name) for each in places]
                policies = [each.mp_policy for each in group.fsdp_params]
                sent = [each.reduce_dtype or each.param_dtype for each in policies]
                is_sum = group.force_sum_reduction_for_comms or not _KINDS.issuperset(
                    one or each.dtype for one, each in zip(sent, parameters, strict=True)
                )
                is_twice = is_sum and len(own) == 1 and factor not in (None, 1)
                yield Averaging("fully_shard", parameters, own, factor or len(own), is_twice)


def averaged_by(module: Module) -> Iterable[Tensor]:
    """The parameters whose gradients a module averages over all ranks in each backward pass."""
    if not isinstance(module, DistributedDataParallel):
        return ()
    # A hook may average over some ranks only, as those of local SGD do.
    has_hook = bool(module._comm_hooks)  # pyright: ignore
    if has_hook or ranks.world_size(module.process_group) < ranks.world_size():
        return ()
    left_out = module.parameters_to_ignore
    return [each for name, each in module.module.named_parameters() if name not in left_out]


def sums_of_weights(engine: Any) -> tuple[int, int]:
    """Checksums of some numbers of the weights that `averaged_by` keeps alike, and of all others.

    The others are those that train, that `DistributedDataParallel` does not have, and that are no
    shards; none where ranks compute a batch together.
    """
    objects = all_modules(engine.objects.values())
    known = [*objects, *all_modules(engine.handlers.values())]
    averaged = {id(each): each for one in known for each in averaged_by(one)}
    wrapped = [one for one in known if isinstance(one, DistributedDataParallel)]
    inside = {id(each) for one in wrapped for each in one.parameters()}
    whole = objects if ranks.data_group() is None else []
    own = {id(each): each for one in whole for each in one.parameters(recurse=False)}
    others = [e for key, e in own.items() if key not in inside and e.requires_grad]
    first = map(sample, averaged.values())
    second = map(sample, (each for each in others if not is_spread(each)))
    return crc32(b"".join(filter(None, first))), crc32(b"".join(filter(None, second)))


def fsdp_groups(module: Any) -> list[Any]:
    """The groups of parameters that FSDP2 gathers at once for a module; none for other modules."""
    # Torch has no public name for them; before 2.13, a module has one group.
    state: Any = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    group = getattr(state, "_fsdp_param_group", None)
    return [] if group is None else [group]


def reshard(modules: Iterable[Any]) -> None:
    """Drop the whole weights that FSDP2 keeps after a forward pass without a backward pass.

    The next forward pass would use them even if the shards have changed since.
    """
    for each in modules:
        each.reshard()


class ShardedWeights(Module):
    """The weights of a sharded module under their plain names; it has no forward pass."""

    def forward(self, *_: Any, **__: Any) -> Any:
        """Raise an error that says how to evaluate these weights."""
        raise TypeError(
            "these are the weights of a sharded module, such as an average, and not a module that "
            "computes; lend them to the model: engine.evaluate(loader, weights='ema'), or "
            "`with engine.using('ema'): model(...)`"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:  # pyright: ignore
        """Load tensors that are whole or sharded in another way, too."""
        for name, tensor in [*self._parameters.items(), *self._buffers.items()]:
            value = state_dict.get(prefix + name)
            if is_spread(tensor) and isinstance(value, Tensor) and value.shape == tensor.shape:
                copy_into(tensor, value)
                state_dict[prefix + name] = tensor
        super()._load_from_state_dict(state_dict, prefix, *rest)


def weights_alone(module: Module, device: str | None = None) -> ShardedWeights:
    """A copy of a module's weights that records no gradients; each rank copies its own shards."""
    reshard(fully_sharded([module]))
    return _weights_alone(unwrap(module), device, {}, {})


def as_in_a_copy(tensor: Tensor, device: Any) -> Tensor:
    """A copy as `twin` makes it."""
    is_small = tensor.is_floating_point() and tensor.element_size() < 4
    kind = torch.float32 if is_small else tensor.dtype
    copy = tensor.detach().to(device=device or tensor.device, dtype=kind, copy=True)
    return Parameter(copy, requires_grad=False) if isinstance(tensor, Parameter) else copy


def _weights_alone(
    module: Any, device: str | None, modules: dict[int, ShardedWeights], tensors: dict[int, Any]
) -> ShardedWeights:
    if id(module) in modules:
        return modules[id(module)]
    made = modules[id(module)] = ShardedWeights()

    def copied(tensor: Any) -> Any:
        if tensor is not None and id(tensor) not in tensors:
            tensors[id(tensor)] = as_in_a_copy(tensor, device)
        return tensors.get(id(tensor))

    for name, tensor in module._parameters.items():
        made.register_parameter(name, copied(tensor))
    for name, tensor in module._buffers.items():
        is_saved = name not in module._non_persistent_buffers_set
        made.register_buffer(name, copied(tensor), persistent=is_saved)
    for name, child in module._modules.items():
        if child is not None:
            made.add_module(name, _weights_alone(unwrap(child), device, modules, tensors))
    return made


def _fsdp() -> Any:
    return getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
