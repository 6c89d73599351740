"""The tensors of a checkpoint, read one by one or in part: of one file, or in pieces by rank."""

from .joined import Joined
from .piece_files import PieceFile, RankFiles
from .streamed import payload_of
from .tensor_file import TensorFile, TensorInFile, TensorSource

__all__ = [
    "Joined",
    "PieceFile",
    "RankFiles",
    "TensorFile",
    "TensorInFile",
    "TensorSource",
    "payload_of",
]
