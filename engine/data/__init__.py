"""The data of a run: its batches, their order, and the position from which a resumed run reads."""

from .feed import Feed, is_read, source_of
from .in_step import ForwardAlong, InStep
from .sources import parts_by_epoch, shortest

__all__ = [
    "Feed",
    "ForwardAlong",
    "InStep",
    "is_read",
    "parts_by_epoch",
    "shortest",
    "source_of",
]
