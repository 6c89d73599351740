"""A checkpoint that several ranks write together, and that any number of ranks can read.

Each rank writes files of its own into one temporary directory: what the run is for this rank, and
the pieces of sharded tensors that it owns. Rank 0 gives the directory its name when all have told
that theirs are on the disk. No rank ever holds another's shard.
"""

from .buffers import Buffers, buffers_of_own
from .folder import meet, temporary_path
from .regions import is_distributed, is_sharded, own_runs
from .saving import Saving
from .taking import Taken, take_together
from .targets import Resharded, Targets

__all__ = [
    "Buffers",
    "Resharded",
    "Saving",
    "Taken",
    "Targets",
    "buffers_of_own",
    "is_distributed",
    "is_sharded",
    "meet",
    "own_runs",
    "take_together",
    "temporary_path",
]
