"""A directory of checkpoints: finding, reading, writing and dropping them, and its lock.

Importing this room imports no torch.
"""

from .catalogue import Checkpoints, checkpoints, verified_at
from .contents import (
    BrokenPieces,
    Held,
    checksums_of,
    infos_in,
    part_tree,
    read_checkpoint,
    read_part,
    table_in,
    tree_in,
    verify_files,
    verify_part,
)
from .files import CHUNK, need_space, scratch, sweep
from .findings import Claims, Finding, Findings, NoCheckpointError, is_checkpoint, look
from .lock import DirectoryLock
from .read_back import UnreadableError, next_number
from .saved import NAME, Saved, files_on_disk, saved_at, scan
from .strip import module_files, strip
from .tensor_files import PieceFile, TensorInFile, TensorSource
from .weights_at import weights_at
from .write import (
    LATEST,
    commit,
    drop,
    drop_unclaimed,
    is_claimed,
    place_for,
    set_aside,
    telling_failures,
    unused_path,
    write_checkpoint,
    write_part,
)

__all__ = [
    "CHUNK",
    "LATEST",
    "NAME",
    "BrokenPieces",
    "Checkpoints",
    "Claims",
    "DirectoryLock",
    "Finding",
    "Findings",
    "Held",
    "NoCheckpointError",
    "PieceFile",
    "Saved",
    "TensorInFile",
    "TensorSource",
    "UnreadableError",
    "checkpoints",
    "checksums_of",
    "commit",
    "drop",
    "drop_unclaimed",
    "files_on_disk",
    "infos_in",
    "is_checkpoint",
    "is_claimed",
    "look",
    "module_files",
    "need_space",
    "next_number",
    "part_tree",
    "place_for",
    "read_checkpoint",
    "read_part",
    "saved_at",
    "scan",
    "scratch",
    "set_aside",
    "strip",
    "sweep",
    "table_in",
    "telling_failures",
    "tree_in",
    "unused_path",
    "verified_at",
    "verify_files",
    "verify_part",
    "weights_at",
    "write_checkpoint",
    "write_part",
]
