"""Loaders that Hugging Face's accelerate or Lightning Fabric has prepared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..state import Dealing, Position
from .sources import Source


@dataclass(frozen=True)
class Inside:
    """What a prepared loader does beside reading the loader inside."""

    loader: Any
    begin: Callable[[], object]
    """Called at the beginning of a pass."""
    move: Callable[[Any], Any]
    """Moves a batch to the device."""


def inside(data: Any) -> Inside | None:
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


class Prepared(Source[Any]):
    """A prepared loader: the loader inside is read, in the same order as by accelerate or Fabric.

    Their own iterators count epochs in the process alone, and read a batch ahead.
    """

    def __init__(self, data: Any, inside: Inside, source: Source[Any]) -> None:
        """Take the source of the loader inside."""
        super().__init__(data)
        self.inside = inside
        self.source = source

    def open(self, position: Position, consumed: int) -> Iterator[Any]:
        """Begin a pass, at its first batch or a later one."""
        self.inside.begin()
        return map(self.inside.move, self.source.open(position, consumed))

    def length(self, dealing: Dealing | None = None) -> int | None:
        """The number of batches of a pass."""
        return self.source.length(dealing)

    def dealing(self) -> Dealing:
        """How ranks share the samples."""
        return self.source.dealing()

    def shares(self) -> dict[int, float] | None:
        """The weights of batches in a mean over ranks, where they may be unlike."""
        return self.source.shares()

    @property
    def goes_on_anywhere(self) -> bool:
        """True if a pass can go on with batches of another size behind any sample."""
        return self.source.goes_on_anywhere

    @property
    def fits_any_ranks(self) -> bool:
        """True if a position in it may hold for other ranks than those that wrote it."""
        return self.source.fits_any_ranks

    def sizes(self) -> dict[str, int]:
        """The sizes of the loader inside."""
        return self.source.sizes()

    def state(self) -> Any:
        """The state of the loader inside, if it has one."""
        return self.source.state()

    def settle(self, state: Any) -> None:
        """Between two passes, put the loader inside back to this state."""
        self.source.settle(state)

    def doubts(self) -> list[str]:
        """Those of the loader inside."""
        return self.source.doubts()

    def close(self) -> None:
        """Release the loader inside at the end of the run."""
        self.source.close()


def _mover(move: Callable[[Any, Any], Any], device: Any) -> Callable[[Any], Any]:
    return _same if device is None else lambda batch: move(batch, device)


def _same(batch: Any) -> Any:
    return batch


def _nothing() -> None:
    """Fabric does nothing at the beginning of a pass that Camshaft does not do."""
