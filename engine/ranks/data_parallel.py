"""Which ranks read different data: all, unless some work on the same batch together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .groups import is_distributed, rank, world_size

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_chosen: list[Any] = []
"""The default group, and the group of the ranks that read different data."""


def data_parallel(mesh: DeviceMesh | None) -> None:
    """Say which dimensions of a mesh read different data; ranks along the others read the same.

    The ranks of tensor parallelism compute one batch together, so a sample that all of them read
    counts once. `loader`, means over ranks, counts of targets and metrics follow this setting.
    Call it once, on every rank, before loader and engine are made. FSDP and HSDP alone do not
    need it: each of their ranks reads its own data.

    ```python
    mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("data", "tensor"))
    ranks.data_parallel(mesh["data"])
    ```

    Args:
        mesh: One dimension of the mesh, or several, as HSDP has two: `mesh["replicate", "shard"]`;
            None if all ranks read the same data.

    Raises:
        RuntimeError: No process group is up.
    """
    if not is_distributed():
        raise RuntimeError(
            "ranks.data_parallel(...) names some of the ranks of a process group, and none is up: "
            "call it inside `with ranks.process_group():`, after init_device_mesh(...)"
        )
    import torch.distributed as dist

    own = [rank()] if mesh is None else sorted(mesh.mesh.flatten().tolist())
    if len(own) == world_size():
        group = None
    elif mesh is not None and mesh.ndim == 1:
        group = mesh.get_group()
    else:
        group = dist.new_group(own, use_local_synchronization=True)
    _chosen[:] = [dist.group.WORLD, group]


def data_group() -> Any:
    """This rank's group of ranks that read different data; None for all ranks.

    `ranks.total(count, group=ranks.data_group())` counts each sample once.
    """
    if not _chosen or not is_distributed():
        return None
    import torch.distributed as dist

    return _chosen[1] if _chosen[0] is dist.group.WORLD else None


def data_rank() -> int:
    """This rank's number among the ranks that read different data, from 0."""
    return rank(data_group())


def data_world_size() -> int:
    """How many ranks read different data."""
    return world_size(data_group())


def members(group: Any = None) -> set[int]:
    """The ranks of a process group, by default all ranks."""
    if not is_distributed():
        return {0}
    import torch.distributed as dist

    return set(dist.get_process_group_ranks(group or dist.group.WORLD))
