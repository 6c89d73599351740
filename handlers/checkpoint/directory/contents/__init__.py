"""What one checkpoint holds: plain values, tensors, objects; and whether it is whole."""

from .checkpoint_files import CheckpointFiles
from .checksums import checksums_of
from .held import Held
from .objects import read_objects, read_weights, write_tensors
from .tensors import OF_RANK, infos_in, piece_files, read_checkpoint, read_part, sources
from .trees import part_tree, table_in, tree_at, tree_in
from .verify import BrokenPieces, compare_sizes, refuse_other_pieces, verify_files, verify_part

__all__ = [
    "OF_RANK",
    "BrokenPieces",
    "CheckpointFiles",
    "Held",
    "checksums_of",
    "compare_sizes",
    "infos_in",
    "part_tree",
    "piece_files",
    "read_checkpoint",
    "read_objects",
    "read_part",
    "read_weights",
    "refuse_other_pieces",
    "sources",
    "table_in",
    "tree_at",
    "tree_in",
    "verify_files",
    "verify_part",
    "write_tensors",
]
