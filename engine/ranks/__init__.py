"""The ranks of a distributed run; without a process group there is one, and no communication."""

from .communication import (
    agreed,
    alone,
    any_rank,
    count,
    first,
    gathered,
    is_distributed,
    local_rank,
    local_world_size,
    on_all_ranks,
    rank,
    share,
    total,
    world_size,
)
from .letters import collected, leave
from .process_group import process_group
from .rank_zero import rank_zero_first, rank_zero_only

__all__ = [
    "agreed",
    "alone",
    "any_rank",
    "collected",
    "count",
    "first",
    "gathered",
    "is_distributed",
    "leave",
    "local_rank",
    "local_world_size",
    "on_all_ranks",
    "process_group",
    "rank",
    "rank_zero_first",
    "rank_zero_only",
    "share",
    "total",
    "world_size",
]
