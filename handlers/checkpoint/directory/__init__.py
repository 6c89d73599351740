"""A directory of checkpoints: finding, reading, writing and dropping them, and its lock.

Importing this room imports no torch.
"""

from .catalogue import (
    Checkpoints,
    checkpoints,
    chosen,
    next_number,
    refuse_unknown_metrics,
    scan,
    verified_at,
)
from .contents import (
    OF_RANK,
    OpenFiles,
    StoredTensor,
    payload_of,
    read_part,
    stored_in,
    stored_in_pieces,
    table_in,
    tensors_by_name,
    tree_at,
    tree_in,
)
from .dcp_directory import DCPDirectory, qualified
from .files import DirectoryLock, need_space, scratch, sweep_run
from .look import Claims, Finding, Findings, NoCheckpointError, is_checkpoint, look
from .saved import NAME, Saved, files_on_disk, saved_at
from .verify import (
    Places,
    check_pieces,
    checksums_of,
    problem_of,
    verify_files,
    verify_portion,
)
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
    "LATEST",
    "NAME",
    "OF_RANK",
    "Checkpoints",
    "Claims",
    "DCPDirectory",
    "DirectoryLock",
    "Finding",
    "Findings",
    "NoCheckpointError",
    "OpenFiles",
    "Places",
    "Saved",
    "StoredTensor",
    "check_pieces",
    "checkpoints",
    "checksums_of",
    "chosen",
    "commit",
    "drop",
    "drop_unclaimed",
    "files_on_disk",
    "is_checkpoint",
    "is_claimed",
    "look",
    "need_space",
    "next_number",
    "payload_of",
    "place_for",
    "problem_of",
    "qualified",
    "read_part",
    "refuse_unknown_metrics",
    "saved_at",
    "scan",
    "scratch",
    "set_aside",
    "stored_in",
    "stored_in_pieces",
    "sweep_run",
    "table_in",
    "telling_failures",
    "tensors_by_name",
    "tree_at",
    "tree_in",
    "unused_path",
    "verified_at",
    "verify_files",
    "verify_portion",
    "weights_at",
    "write_checkpoint",
    "write_part",
]
