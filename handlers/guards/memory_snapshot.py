"""What was in memory when it ran out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from ...engine import Engine, Events, State, ranks
from ...engine.modules import weights_of
from ..common import Cell, aligned
from ..files import appearing, refuse_odd

GIB = 2**30
CUDA: Any = torch.cuda.memory  # torch documents its recording of allocations under private names


@dataclass(frozen=True, eq=False)
class MemorySnapshot:
    """When memory runs out, note on the exception what was in it, and save torch's own snapshot.

    The note has the memory of each CUDA device, the shapes of the batch, and the size of
    parameters, gradients and optimizers. The snapshot, `memory-rank0.pickle`, has each block of a
    CUDA device with the lines that made it; https://pytorch.org/memory_viz shows it. Recording the
    lines costs about a microsecond for each allocation, from the beginning of the run to its end.

    Args:
        directory: Where to save the snapshot.
        entries: The number of latest allocations and releases that are recorded.
    """

    writes_files: ClassVar[bool] = True
    only_on_rank: ClassVar[None] = None
    """Each rank has its own, or none."""
    directory: str | PathLike[str]
    _: KW_ONLY
    entries: int = 100_000

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Record while a run is under way; look when it fails."""
        engine.on(Events.STARTED)(self.record)
        engine.on(Events.FAILED)(self.look)
        engine.on(Events.CLOSED)(self.stop)

    def record(self, state: State[Any, Any]) -> None:
        """Begin to record allocations, if there is a CUDA device."""
        if torch.cuda.is_available():
            CUDA._record_memory_history(max_entries=self.entries)

    def look(self, state: State[Any, Any]) -> None:
        """Add the note to an exception that says that memory ran out, and save the snapshot."""
        error = state.error
        if not isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
            return
        error.add_note("\n".join([*_memory(), *_sizes(state)]))
        if torch.cuda.is_available():
            path = Path(self.directory) / f"memory-rank{ranks.rank()}.pickle"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                refuse_odd(path)
                with appearing(path) as temporary:
                    CUDA._dump_snapshot(str(temporary))
                error.add_note(f"{path} shows each block: https://pytorch.org/memory_viz")
            except OSError as problem:
                error.add_note(f"no snapshot was saved: {problem}")

    def stop(self, state: State[Any, Any]) -> None:
        """Record no longer."""
        if torch.cuda.is_available():
            CUDA._record_memory_history(enabled=None)


def _memory() -> list[str]:
    """A line for each CUDA device that this process uses."""
    lines: list[str] = []
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return lines
    for device in range(torch.cuda.device_count()):
        free, size = torch.cuda.mem_get_info(device)
        if allocated := torch.cuda.memory_allocated(device):
            peak = torch.cuda.max_memory_allocated(device)
            lines.append(
                f"cuda:{device}: {allocated / GIB:.2f} GiB allocated, {peak / GIB:.2f} at most; "
                f"{free / GIB:.2f} of {size / GIB:.2f} GiB free"
            )
    return lines


def _sizes(state: State[Any, Any]) -> list[str]:
    """The shapes of the batch, and the memory that the engine's objects take."""
    batch = [leaf for leaf in tree_leaves(state.batch) if isinstance(leaf, Tensor)]
    shapes = ", ".join(f"{tuple(each.shape)} {each.dtype}" for each in batch)
    rows: list[tuple[str, Cell]] = [("object", "GiB")]
    for name, each in state.engine.objects.items():
        if isinstance(each, Module):
            rows.append((name, _gib(weights_of(each).values())))
            rows.append((f"gradients of {name}", _gib(own.grad for own in each.parameters())))
        elif isinstance(each, Optimizer):
            rows.append((name, _gib(tree_leaves(list(each.state.values())))))
    return [f"batch: {shapes or 'no tensors'}", *aligned(rows)]


def _gib(tensors: Iterable[Any]) -> float:
    return sum(each.nbytes for each in tensors if isinstance(each, Tensor)) / GIB
