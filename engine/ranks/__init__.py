"""The ranks of a distributed run; without a process group there is one, and no communication."""

from .communication import (
    agreed,
    any_rank,
    begin_total,
    count,
    decided,
    from_first,
    from_rank,
    gathered,
    gathered_at_first,
    largest,
    most,
    on_all_ranks,
    receive,
    send,
    share,
    summed,
    total,
)
from .data_parallel import data_group, data_parallel, data_rank, data_world_size, members
from .failure import note_failure
from .groups import (
    alone,
    default_store,
    is_distributed,
    local_rank,
    local_world_size,
    on_this_rank,
    rank,
    world_size,
)
from .letters import collected, leave, read_letters, remove_letters, wait_for
from .prepare import prepare
from .process_group import process_group
from .rank_zero import rank_zero_first, rank_zero_only
from .stacks import stacks_of_all
from .stops import Stops

__all__ = [
    "Stops",
    "agreed",
    "alone",
    "any_rank",
    "begin_total",
    "collected",
    "count",
    "data_group",
    "data_parallel",
    "data_rank",
    "data_world_size",
    "decided",
    "default_store",
    "from_first",
    "from_rank",
    "gathered",
    "gathered_at_first",
    "is_distributed",
    "largest",
    "leave",
    "local_rank",
    "local_world_size",
    "members",
    "most",
    "note_failure",
    "on_all_ranks",
    "on_this_rank",
    "prepare",
    "process_group",
    "rank",
    "rank_zero_first",
    "rank_zero_only",
    "read_letters",
    "receive",
    "remove_letters",
    "send",
    "share",
    "stacks_of_all",
    "summed",
    "total",
    "wait_for",
    "world_size",
]
