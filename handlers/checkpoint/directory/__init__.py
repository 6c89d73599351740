"""A directory of checkpoints: finding, reading, writing and dropping them, and its lock.

Importing this room imports no torch.
"""

from .catalogue import (
    Checkpoints,
    Claims,
    Finding,
    Findings,
    NoCheckpointError,
    checkpoints,
    is_checkpoint,
    look,
    next_number,
    refuse_unknown_metrics,
    scan,
    verified_at,
)
from .checksums import checksums_of
from .files import CHUNK, DirectoryLock, foreign_files, need_space, scratch, sweep
from .saved import Saved, files_on_disk, read_checkpoint, read_part, saved_at, tensors_of
from .tensors import OpenFiles, StoredTensor, payload_of, stored_in, stored_in_pieces
from .trees import NAME, part_tree, table_in, tree_in
from .verify import OF_RANK, BrokenPieces, ReadOnce, problem_of, verify_files, verify_part
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
    "OF_RANK",
    "BrokenPieces",
    "Checkpoints",
    "Claims",
    "DirectoryLock",
    "Finding",
    "Findings",
    "NoCheckpointError",
    "OpenFiles",
    "ReadOnce",
    "Saved",
    "StoredTensor",
    "checkpoints",
    "checksums_of",
    "commit",
    "drop",
    "drop_unclaimed",
    "files_on_disk",
    "foreign_files",
    "is_checkpoint",
    "is_claimed",
    "look",
    "need_space",
    "next_number",
    "part_tree",
    "payload_of",
    "place_for",
    "problem_of",
    "read_checkpoint",
    "read_part",
    "refuse_unknown_metrics",
    "saved_at",
    "scan",
    "scratch",
    "set_aside",
    "stored_in",
    "stored_in_pieces",
    "sweep",
    "table_in",
    "telling_failures",
    "tensors_of",
    "tree_in",
    "unused_path",
    "verified_at",
    "verify_files",
    "verify_part",
    "weights_at",
    "write_checkpoint",
    "write_part",
]
