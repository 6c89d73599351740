"""Sharded models: setups that would train wrongly are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from .. import modules, ranks
from ..modules import parameters_of
from ..names import few
from .checked import Checked

UNSUPPORTED = {
    "FullyShardedDataParallel": (
        "its flat parameters have no names, shapes and norms of their own; shard the model by its "
        "successor: torch.distributed.fsdp.fully_shard(model), which wraps nothing"
    ),
    "ShardedDataParallel": "shard the model by torch.distributed.fsdp.fully_shard(model) instead",
    "DeepSpeedEngine": (
        "it makes backward passes and steps itself; give the module inside, sharded by "
        "torch.distributed.fsdp.fully_shard(module)"
    ),
}
"""By the class of a wrapper: why it is refused, and what to do."""


def refuse_wrappers(found: Iterable[Any]) -> None:
    """Refuse wrappers that take over the work of an engine, such as backward passes and steps."""
    for module in found:
        for each in module.modules() if hasattr(module, "named_parameters") else ():
            for kind in type(each).__mro__:
                if kind.__name__ in UNSUPPORTED:
                    raise ValueError(
                        f"a {kind.__name__} cannot be trained here: {UNSUPPORTED[kind.__name__]}"
                    )


def check_sharded(run: Checked) -> None:
    """Refuse sharded models whose gradients would not be the mean over all data."""
    objects, updates = run.objects, [*run.updates.values(), *run.optimizers.values()]
    modules.reshard(modules.fully_sharded(objects.values()))  # after a forward pass alone
    found = [module for each in objects.values() for module in modules.modules_of(each)]
    around = [model for each in updates if (model := getattr(each, "model", None)) is not None]
    refuse_wrappers([*found, *around])
    _check_shards(found)
    optimizers: list[Any] = [getattr(each, "optimizer", each) for each in updates]
    trained = [p for each in optimizers for p in parameters_of(each) if p.requires_grad]
    names = {id(each): name for module in found for name, each in module.named_parameters()}
    is_sharded = modules.are_spread(each for module in found for each in module.parameters())
    if is_sharded and trained and names.keys().isdisjoint(map(id, trained)):
        raise ValueError(
            "the optimizer updates no parameter of the sharded model: fully_shard and "
            "parallelize_module replace the parameters, so make the optimizer after them"
        )
    averages = [*modules.averaging([*found, *around])]
    readers = ranks.members(ranks.data_group())
    is_wrapped = any(map(modules.parallel_of, around))
    if modules.are_spread(trained) and not is_wrapped and len(readers) > 1:
        _check_averaged(trained, names, readers, averages)
    ids = {*map(id, trained)}
    _check_spans([e for e in averages if not ids.isdisjoint(map(id, e.parameters))], readers)


def _check_spans(averages: Iterable[modules.Averaging], readers: set[int]) -> None:
    """Check that exactly the ranks that read different data average a model's gradients."""
    for each in averages:
        kind, own = each.kind, each.ranks
        if each.is_twice:
            raise ValueError(
                f"{kind} over one rank divides gradients by {each.divisor:g} twice, since they are "
                "reduced in float16 or float64, or after set_force_sum_reduction_for_comms(True): "
                "leave that out, or give MixedPrecisionPolicy(reduce_dtype=torch.float32)"
            )
        if _gathers(each, readers) or (own == readers and each.divisor == len(readers)):
            continue
        if own == readers:
            raise ValueError(
                f"{kind} divides a sum of gradients by {each.divisor:g}, as "
                f"set_gradient_divide_factor said, and {len(readers)} ranks read different "
                "data; losses and counts of targets need the mean over these: leave it out, "
                f"or set it to {len(readers)}"
            )
        if readers <= own:
            raise ValueError(
                f"{kind} averages gradients over the ranks {few(own, 8)}, and by "
                f"ranks.data_parallel(...) the ranks {few(readers, 8)} read different data, so "
                "counts of targets, metrics and decisions would be those of a part of the model's "
                "ranks. If the others split the same samples (context parallelism), leave "
                "ranks.data_parallel(...) out, or name all these dimensions of the mesh, and deal "
                "the samples by a sampler of your own; else give the model the group that reads "
                "different data, such as process_group=ranks.data_group()"
            )
        raise ValueError(
            f"{kind} averages gradients over the ranks {few(own, 8)}, and the ranks "
            f"{few(readers, 8)} read different data, so their weights would drift apart: give the "
            "model a group of all of these, or say by ranks.data_parallel(mesh[...]) which ranks "
            "train one model"
        )


def _gathers(each: modules.Averaging, readers: set[int]) -> bool:
    """True if a part's gradients are said to come from all ranks that read different data.

    So it is with experts: the other ranks of the mesh send them the tokens of their own data, and
    the sum of their gradients is divided by the number of all these ranks.
    """
    if each.divisor != len(readers) or each.ranks == readers:
        return False
    return all(modules.is_spread(own) and readers <= _mesh(own) for own in each.parameters)


def _mesh(parameter: Any) -> set[int]:
    return set(parameter.device_mesh.mesh.flatten().tolist())


def _splits(parameter: Any) -> int:
    """Along how many dimensions of its mesh a parameter is split, into more than one part."""
    sizes = zip(parameter.placements, parameter.device_mesh.shape, strict=True)
    return sum(not place.is_replicate() and size > 1 for place, size in sizes)


def _check_shards(found: Iterable[Any]) -> None:
    import torch

    is_old = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11)
    for module in found:
        for name, each in chain(module.named_parameters(), module.named_buffers()):
            if modules.is_spread(each):
                if is_old and _splits(each) > 1:
                    raise ValueError(
                        f"the weight {name!r} is split along two dimensions of its mesh, as by "
                        "tensor parallelism and fully_shard; that needs torch 2.11, since torch "
                        "2.9 puts uneven shards of this kind together in the wrong order, and this "
                        f"is {torch.__version__}"
                    )
                try:
                    modules.box_of(each)
                except ValueError as error:
                    raise ValueError(f"the weight {name!r} cannot be saved: {error}") from None


def _check_averaged(
    trained: list[Any], names: Mapping[int, str], readers: set[int], averages: list[Any]
) -> None:
    """Check that all ranks that read different data take part in each parameter's gradient."""
    if not averages:
        raise ValueError(
            f"the model is parallelized, and nothing averages its gradients over the "
            f"{len(readers)} ranks that read different data: {SAY}; or fully_shard(model) it too"
        )
    by = {id(own): each for each in averages for own in each.parameters}
    for each in trained:
        name = names.get(id(each), f"of shape {tuple(each.shape)}")
        if not modules.is_spread(each):
            raise ValueError(
                f"the parameter {name!r} is on no mesh, unlike others, so its gradient would "
                "differ from rank to rank: call fully_shard(model) on all of it, after its parts"
            )
        if id(each) not in by:
            raise ValueError(
                f"nothing averages the gradient of the parameter {name!r} over the {len(readers)} "
                f"ranks that read different data: {SAY}; or call fully_shard on its module too"
            )
        if _gathers(by[id(each)], readers):
            continue
        if not readers <= _mesh(each):
            raise ValueError(
                f"the parameter {name!r} is on the ranks {few(_mesh(each), 8)}, and the ranks "
                f"{few(readers, 8)} read different data, so its gradient is no mean over all of "
                f"it: {SAY}"
            )
        if (splits := _splits(each)) > 1 and readers >= _mesh(each):
            raise ValueError(
                f"the parameter {name!r} is split along {splits} dimensions of its mesh, and all "
                f"ranks of the mesh read different data: {SAY}; or, if its ranks get each other's "
                "samples, as experts do, say so: "
                f"module.set_gradient_divide_factor({len(readers)})"
            )


SAY = (
    "the ranks of tensor parallelism read the same batches, so say which dimension of the mesh "
    'reads different ones, before the loader is made: ranks.data_parallel(mesh["data"]), or '
    "ranks.data_parallel(None) if all ranks read the same"
)
