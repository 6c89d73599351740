"""Distributed tensors: where their shards lie, which rank writes what, and what a rank reads."""

from .plan import Layout, Layouts
from .regions import holds_first_copy, is_distributed, is_sharded
from .targets import OwnShard, Targets

__all__ = [
    "Layout",
    "Layouts",
    "OwnShard",
    "Targets",
    "holds_first_copy",
    "is_distributed",
    "is_sharded",
]
