"""Code that rank 0 runs alone or before the other ranks; its error is raised on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from .communication import on_all_ranks
from .groups import local_rank, rank

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def rank_zero_only(function: Callable[Parameters, Result]) -> Callable[Parameters, Result | None]:
    """Decorate a function that only rank 0 runs; the other ranks wait for it, and get None.

    Every rank has to call it. If it raises on rank 0, every rank raises, so that none waits for
    rank 0 until a timeout. To give all ranks the result: `ranks.gathered(result)[0]`.

    >>> @rank_zero_only
    ... def write(text):
    ...     print(text)
    >>> write("once")
    once
    """

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result | None:
        with on_all_ranks(f"call {function.__qualname__}"):
            return function(*args, **kwargs) if rank() == 0 else None

    return call


@contextmanager
def rank_zero_first(*, local: bool = False) -> Generator[None]:
    """Let rank 0 run a `with` block, or a function, before the other ranks do.

    For a task whose result the other ranks reuse, such as a download. If rank 0 raises inside,
    the other ranks raise before the block.

    >>> with rank_zero_first():
    ...     print("ready")
    ready

    Args:
        local: Let the first rank of each machine go first: for files on the machine's own disk.
    """
    first = (local_rank() if local else rank()) == 0
    task = "go through a block of rank_zero_first()"
    with on_all_ranks(task):
        if first:
            yield
    if not first:
        yield
