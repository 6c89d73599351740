"""The model of a rank: on its device, and in DDP or FSDP2 where there are several ranks."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from importlib import import_module
from inspect import signature
from itertools import chain
from typing import TYPE_CHECKING, Any

from .communication import most, share
from .groups import is_distributed, local_rank, world_size
from .process_group import join_ranks

if TYPE_CHECKING:
    import torch
    from torch.nn import Module

    One = str | type[Module] | Callable[[str, Module], bool]
    Parts = One | tuple[One, ...]

SPREAD = {"DistributedDataParallel", "DataParallel", "FSDPModule", "DTensor", "_FabricModule"}


def prepare(
    model: Module,
    *,
    shard: Parts | None = None,
    device: torch.device | str | None = None,
    **options: Any,
) -> Module:
    """Put a model on this rank's device and, where there are several ranks, into DDP or FSDP2.

    Call it first: it joins the ranks of a launcher, unless a process group is up, and `fully_shard`
    replaces the parameters, of which the optimizer is made. All ranks begin with rank 0's weights
    and buffers. In one process, and for a model that does not train, it returns the model itself.

    Args:
        model: Not yet wrapped or sharded.
        shard: The parts that FSDP2's `fully_shard` splits over the ranks, each for itself, before
            the rest of the model: names as in `model.named_modules()`, with `*` as in file names;
            classes; a function of name and part; or several of these in a tuple. Of a part inside
            another, the outer one.
        device: By default the CUDA device with this rank's number on its machine, else the CPU.
        options: Of `DistributedDataParallel`, such as `find_unused_parameters=True`, or of
            `fully_shard`, such as `mp_policy=`; without effect in one process.

    Raises:
        TypeError: `model` is no module, `shard` none of these, or torch has no such option.
        ValueError: The model is wrapped, or `shard` means no part or separates tied weights.
    """
    if isinstance(model, type) or not hasattr(model, "named_parameters"):
        raise TypeError(f"ranks.prepare() got a {type(model).__name__}; it takes a model alone")
    inside = chain(model.modules(), model.parameters())
    if found := SPREAD & {base.__name__ for each in inside for base in type(each).__mro__}:
        raise ValueError(
            f"ranks.prepare takes a plain model, once; this one holds {', '.join(sorted(found))}"
        )
    torch: Any = import_module("torch")
    wrap, parts = torch.nn.parallel.DistributedDataParallel, [model]
    if shard is not None:
        wrap, parts = import_module("torch.distributed.fsdp").fully_shard, _parts(model, shard)
    signature(wrap).bind(model, **options)
    join_ranks("gloo" if str(device).startswith("cpu") else None)
    sends = torch.distributed.get_backend_config() if is_distributed() else "cpu, cuda"
    place = torch.device(device or device_of(local_rank(), torch.cuda.device_count(), sends))
    if device is None and place.type == "cuda":
        torch.cuda.set_device(place)
    if world_size() == 1:
        return model.to(place)
    if shard is None and any(each.requires_grad for each in model.parameters()):
        return wrap(model.to(place), **options)  # type: ignore[no-any-return]
    sizes = hash(tuple(each.numel() for each in chain(model.parameters(), model.buffers())))
    if most([sizes, -sizes]) != [sizes, -sizes]:
        raise ValueError("ranks.prepare() got models of unlike shapes on the ranks")
    if shard is not None:
        options.setdefault("mesh", torch.distributed.init_device_mesh(place.type, (world_size(),)))
    for part in parts:  # one after the other, since a device may not hold the whole model
        tensors = chain(part.parameters(), part.buffers())
        plain = [each for each in tensors if type(each).__name__ != "DTensor"]
        for each in plain:
            each.data = each.data.to(place)
        share(plain)
        if shard is not None:
            wrap(part, **options)
    return model


def device_of(number: int, devices: int, sends: str) -> str:
    """The device of the rank with this number on its machine, which sees so many CUDA devices."""
    return f"cuda:{number % devices}" if devices and "cuda" in sends else "cpu"


def _parts(model: Module, shard: Parts) -> list[Module]:
    """The parts of a model to shard, none of them inside another one, and then the model."""
    from torch.nn import Module

    def part_of(name: str) -> Module | None:
        return next((part for each, part in found.items() if name.startswith(f"{each}.")), None)

    def means(name: str, part: Module) -> bool:
        return any(
            isinstance(part, each)
            if isinstance(each, type)
            else fnmatchcase(name, each)
            if isinstance(each, str)
            else each(name, part)
            for each in several
        )

    several = shard if isinstance(shard, tuple) else (shard,)
    for one in several:
        if isinstance(one, Module) or not (isinstance(one, str) or callable(one)):
            raise TypeError(
                f"ranks.prepare(shard=...) got a {type(one).__name__}; it takes names with *, "
                "classes of modules, a function of name and part, or several of these in a tuple"
            )
    found, shown = dict[str, Module](), list[str]()
    for name, part in [*model.named_modules(remove_duplicate=False)][1:]:
        if type(part).forward is not Module.forward:  # which a list of modules does not have
            shown.append(f"{name} ({type(part).__name__})")
            if means(name, part) and part_of(name) is None and any(True for _ in part.parameters()):
                found[name] = part
    if not found:
        has = ", ".join(shown)
        raise ValueError(f"ranks.prepare({shard=}) means no part of the model; it has {has}")
    names = dict[int, str]()
    for name, each in model.named_parameters(remove_duplicate=False):
        if part_of(first := names.setdefault(id(each), name)) is not part_of(name):
            raise ValueError(
                f"{first!r} and {name!r} are one weight, and ranks.prepare({shard=}) would make "
                "two of it: choose parts that hold both or none"
            )
    return [*dict.fromkeys(found.values()), model]
