"""A checkpoint that several ranks write together.

Each rank writes files of its own into one temporary directory: its state of the run, and the pieces
of sharded tensors that it owns. When all ranks have reported that their files are on the disk, rank
0 gives the directory its name. No rank ever holds another rank's shard.
"""

from .alike import check_weights
from .buffers import Buffers, buffers_of_own
from .folder import meet, temporary_path
from .gradient_buckets import arrange_buckets, buckets_of, warn_of_buckets
from .saving import Saving
from .taking import Taken, take_together

__all__ = [
    "Buffers",
    "Saving",
    "Taken",
    "arrange_buckets",
    "buckets_of",
    "buffers_of_own",
    "check_weights",
    "meet",
    "take_together",
    "temporary_path",
    "warn_of_buckets",
]
