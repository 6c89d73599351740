"""A store for one attempt of a job: torchrun's own keeps the keys of attempts that have failed."""

from __future__ import annotations

import time
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import uuid4

PLACE = "camshaft/attempts"


def store_of_attempt(store: Any, rank: int, world_size: int, timeout: timedelta) -> Any:
    """A part of the agent's store that only the ranks of this attempt use.

    After a failure, torchrun starts all ranks again and gives them the same store. A rank that
    reads the addresses there before the others have written theirs gets those of dead processes;
    torch then fails with "connectFullMesh failed", or waits. torchrun tells no number of the
    attempt that is the same on all hosts (TORCHELASTIC_RESTART_COUNT is of one host). So rank 0
    chooses a name, and answers each rank that asks for it with a number that was never used before.

    Raises:
        TimeoutError: Some ranks did not come in time; on rank 0, the message says which.
    """
    dist: Any = import_module("torch.distributed")  # which does not declare its stores
    places = dist.PrefixStore(PLACE, store)
    if rank == 0:
        name = _answer(places, world_size, timeout)
    else:
        own = uuid4().hex
        places.set(f"question/{rank}", own)
        try:
            places.wait([f"answer/{own}"], timeout)
        except RuntimeError as error:  # torch's DistStoreError
            raise TimeoutError(
                f"rank {rank} waited {timeout.total_seconds():g} s for rank 0 to begin the process "
                "group; the log of rank 0 says why it did not"
            ) from error
        name = places.get(f"answer/{own}").decode()
        places.set(f"{name}/{rank}", "")
    return dist.PrefixStore(f"{PLACE}/{name}", store)


def _answer(places: Any, world_size: int, timeout: timedelta) -> str:
    """Answer the other ranks until each has said that it has the answer; what to call the place."""
    name, answered = uuid4().hex, dict[int, str]()
    missing = list(range(1, world_size))
    end = time.monotonic() + timeout.total_seconds()
    while missing:
        for rank in missing:
            # Questions of processes that have died are answered too; these answers stay unread.
            if places.check([f"question/{rank}"]):
                question = places.get(f"question/{rank}").decode()
                if answered.get(rank) != question:
                    answered[rank] = question
                    places.set(f"answer/{question}", name)
        missing = [rank for rank in missing if not places.check([f"{name}/{rank}"])]
        if missing and time.monotonic() > end:
            raise TimeoutError(
                f"ranks {missing} of {world_size} did not join the process group within "
                f"{timeout.total_seconds():g} s; their logs say why"
            )
        time.sleep(0.01 if missing else 0)
    return name
