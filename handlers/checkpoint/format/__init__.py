"""What the files of a checkpoint say: manifest, tensors, values as JSON, claims. Without torch."""

from .decoder import decode, references
from .encoder import Encoder, is_untagged
from .errors import BrokenCheckpoint, UnreadCheckpoint, reading
from .manifest import (
    FROZEN,
    LARGEST_COUNT,
    MANIFEST,
    PLAIN_NAME,
    TENSORS,
    TRAIN,
    TREE,
    Checksums,
    Manifest,
    installed_versions,
)
from .no_memory import needing_memory
from .pieces import (
    MEMORY,
    PIECES,
    Grid,
    Piece,
    Shares,
    Table,
    rank_file,
    table_as_tree,
    table_of_tree,
)
from .retention import Best, Keep, best, every, keep_of, latest
from .tensors import (
    DTYPES,
    Payload,
    TensorInfo,
    info_of,
    layout,
    open_tensors,
    tensors_in,
    tensors_in_order,
)

__all__ = [
    "DTYPES",
    "FROZEN",
    "LARGEST_COUNT",
    "MANIFEST",
    "MEMORY",
    "PIECES",
    "PLAIN_NAME",
    "TENSORS",
    "TRAIN",
    "TREE",
    "Best",
    "BrokenCheckpoint",
    "Checksums",
    "Encoder",
    "Grid",
    "Keep",
    "Manifest",
    "Payload",
    "Piece",
    "Shares",
    "Table",
    "TensorInfo",
    "UnreadCheckpoint",
    "best",
    "decode",
    "every",
    "info_of",
    "installed_versions",
    "is_untagged",
    "keep_of",
    "latest",
    "layout",
    "needing_memory",
    "open_tensors",
    "rank_file",
    "reading",
    "references",
    "table_as_tree",
    "table_of_tree",
    "tensors_in",
    "tensors_in_order",
]
