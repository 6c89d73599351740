"""A directory of checkpoints: finding, reading, writing and dropping them, and its lock.

Importing this room imports no torch.
"""

from .catalogue import Checkpoints, checkpoints, verified_at
from .files import CHUNK, scratch, sweep
from .findings import Claims, Finding, Findings, NoCheckpointError, is_checkpoint, look
from .lock import DirectoryLock
from .read import NAME, Saved, read_checkpoint, saved_at, scan, tree_in, verify_files
from .read_back import UnreadableError, next_number
from .strip import module_files, strip
from .weights_at import weights_at
from .write import (
    LATEST,
    drop,
    drop_unclaimed,
    is_claimed,
    set_aside,
    unused_path,
    write_checkpoint,
)

__all__ = [
    "CHUNK",
    "LATEST",
    "NAME",
    "Checkpoints",
    "Claims",
    "DirectoryLock",
    "Finding",
    "Findings",
    "NoCheckpointError",
    "Saved",
    "UnreadableError",
    "checkpoints",
    "drop",
    "drop_unclaimed",
    "is_checkpoint",
    "is_claimed",
    "look",
    "module_files",
    "next_number",
    "read_checkpoint",
    "saved_at",
    "scan",
    "scratch",
    "set_aside",
    "strip",
    "sweep",
    "tree_in",
    "unused_path",
    "verified_at",
    "verify_files",
    "weights_at",
    "write_checkpoint",
]
