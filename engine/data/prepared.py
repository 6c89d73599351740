"""Loaders that Hugging Face's accelerate or Lightning Fabric has prepared.

The loader inside is read, in the same order as by accelerate or Fabric: their own iterators count
epochs in the process alone, and read a batch ahead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Inside:
    """What a prepared loader does beside reading the loader inside."""

    loader: Any
    begin: Callable[[], object]
    """Called at the beginning of a pass."""
    move: Callable[[Any], Any]
    """Moves a batch to the device."""


def inside_prepared(data: Any) -> Inside | None:
    """The loader inside a prepared one; None for other data.

    Raises:
        TypeError: Batches come from rank 0, or from a loader that reads ahead.
    """
    kinds = {base.__name__: base for base in type(data).__mro__}
    if "DataLoaderAdapter" in kinds:
        return _of_accelerate(data, kinds["DataLoaderAdapter"].__module__)
    if "_FabricDataLoader" in kinds:
        library: Any = sys.modules[kinds["_FabricDataLoader"].__module__]
        return Inside(data._dataloader, _nothing, _mover(library.move_data_to_device, data.device))
    return None


def _of_accelerate(data: Any, module: str) -> Inside:
    library: Any = sys.modules[module]
    if isinstance(data, library.DataLoaderDispatcher) or data.use_stateful_dataloader:
        raise TypeError(
            f"a {type(data).__name__} of accelerate's gives batches of which a checkpoint cannot "
            "hold the place: prepare it with DataLoaderConfiguration(dispatch_batches=False, "
            "use_stateful_dataloader=False), or give the loader as it was before prepare()"
        )

    def begin() -> None:
        if data.rng_types:
            library.synchronize_rng_states(data.rng_types, data.synchronized_generator)

    return Inside(data.base_dataloader, begin, _mover(library.send_to_device, data.device))


def _mover(move: Callable[[Any, Any], Any], device: Any) -> Callable[[Any], Any]:
    return _same if device is None else lambda batch: move(batch, device)


def _same(batch: Any) -> Any:
    return batch


def _nothing() -> None:
    """What Fabric does at the beginning of a pass, Camshaft does by itself."""
