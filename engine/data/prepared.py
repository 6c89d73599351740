"""Loaders that Hugging Face's accelerate or Lightning Fabric has prepared.

The loader inside is read, in the same order as by accelerate or Fabric: their own iterators count
epochs in the process alone, and read a batch ahead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

Inside = tuple[Any, Callable[[], object] | None, Callable[[Any], Any] | None]


def inside_prepared(data: Any) -> Inside:
    """The loader inside a prepared one, and functions that begin a pass and move a batch.

    Raises:
        TypeError: Batches come from rank 0, or from a loader that reads ahead.
    """
    kinds = {base.__name__: base for base in type(data).__mro__}
    if "DataLoaderAdapter" in kinds:
        return _of_accelerate(data, kinds["DataLoaderAdapter"].__module__)
    library: Any = sys.modules[kinds["_FabricDataLoader"].__module__]
    # Fabric's only work before a pass, set_epoch, is Camshaft's.
    return data._dataloader, None, _mover(library.move_data_to_device, data.device)


def _of_accelerate(data: Any, module: str) -> Inside:
    library: Any = sys.modules[module]
    if isinstance(data, library.DataLoaderDispatcher) or data.use_stateful_dataloader:
        raise TypeError(
            f"a {type(data).__name__} of accelerate's gives batches of which a checkpoint cannot "
            "hold the place: prepare it with DataLoaderConfiguration(dispatch_batches=False, "
            "use_stateful_dataloader=False), or give the loader as it was before prepare()"
        )
    begin = partial(library.synchronize_rng_states, data.rng_types, data.synchronized_generator)
    move = _mover(library.send_to_device, data.device)
    return data.base_dataloader, begin if data.rng_types else None, move


def _mover(move: Callable[[Any, Any], Any], device: Any) -> Callable[[Any], Any] | None:
    return None if device is None else lambda batch: move(batch, device)
