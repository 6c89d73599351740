"""Sharded tensors: how each is cut into pieces, and which rank's file holds them. Without torch."""

from .grid import Grid, Piece
from .shares import Held, Shares
from .table import MEMORY, PIECES, Table, table_as_tree, table_of_tree

__all__ = [
    "MEMORY",
    "PIECES",
    "Grid",
    "Held",
    "Piece",
    "Shares",
    "Table",
    "table_as_tree",
    "table_of_tree",
]
