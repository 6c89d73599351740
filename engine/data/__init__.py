"""The data of a run: which batches come, in which order, and from where a resumed run reads on."""

from .feed import Feed, is_read, length_of_pass, order_of, tell_epoch, told_epoch
from .in_step import Along, InStep
from .sources import length_of, length_of_epoch, shortest

__all__ = [
    "Along",
    "Feed",
    "InStep",
    "is_read",
    "length_of",
    "length_of_epoch",
    "length_of_pass",
    "order_of",
    "shortest",
    "tell_epoch",
    "told_epoch",
]
