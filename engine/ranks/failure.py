"""Why a rank failed: it writes the reason before it exits, and ranks that lose it read it."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from threading import Thread
from typing import Any

from .groups import default_store, is_distributed, rank, world_size
from .stacks import PATIENCE as OF_STACKS
from .stacks import stacks_of_all

PLACE = "camshaft/failures"
PATIENCE = 2.0
"""Seconds within which another rank may still say why it failed."""
QUIET = 0.5
"""Seconds without a new reason, after which a rank stops waiting for more."""
LONGEST = 2000
"""The most characters of an error that the other ranks are told."""
OF_GLOO = ("/gloo/", "Application timeout caused pair closure")
"""Texts in gloo's RuntimeErrors: most name the source file that raises, some only say this."""
UNREAD = (
    "the reasons of other ranks cannot be read from the store of the process group. It may have "
    "been in the process of rank 0, and have ended with it"
)
BEGAN = time.time()
"""About when this process began: earlier entries in the store belong to an earlier attempt."""


class AnotherRankError(RuntimeError):
    """Another rank has raised; its own error says why."""


@dataclass
class Failure:
    """What a rank tells of its failure."""

    rank: int
    host: str
    reason: str | None
    """The error; None if the rank failed only because it lost another rank."""
    at: float
    """The clock of its host, in seconds since 1970."""


def note_failure(error: BaseException) -> None:
    """Tell the other ranks why this rank fails, or add to its error which rank failed first.

    The reason goes through the store of the process group, which needs no other rank. A rank whose
    error only says that it lost another rank waits a moment for that rank's reason, and without one
    asks all ranks where they are. This takes a few seconds at most, even if the process that keeps
    the store hangs.
    """
    if not is_distributed() or world_size() == 1 or vars(error).get(PLACE):
        return
    vars(error)[PLACE] = True  # an error passes several runs, and the end of the process group
    notes: list[str] = []
    thread = Thread(target=partial(_try, error, notes), name="failure of a rank", daemon=True)
    thread.start()
    thread.join(2 * PATIENCE + OF_STACKS)
    for note in notes if not thread.is_alive() else [f"{UNREAD}: it does not answer"]:
        error.add_note(note)


def is_loss(error: BaseException) -> bool:
    """True if an error only says that another rank failed, left, or did not answer in time."""
    dist: Any = sys.modules["torch.distributed"]
    if isinstance(error, AnotherRankError | dist.DistError):
        return True
    return type(error) is RuntimeError and any(text in str(error) for text in OF_GLOO)


def write_error_file(error: BaseException) -> None:
    """Write the error for torchrun's summary, as torchrun's decorator `record` does.

    torchrun shows the error of the rank that failed first, by timestamps in whole seconds, and
    may choose wrongly. So the text of each rank names the rank that failed first.
    """
    if isinstance(error, SystemExit) or "TORCHELASTIC_ERROR_FILE" not in os.environ:
        return
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    get_error_handler().record_exception(type(type(error).__name__, (Exception,), {})(text))


def _try(error: BaseException, notes: list[str]) -> None:
    try:
        store = default_store()
        lost = is_loss(error)
        said = None if lost else f"{type(error).__name__}: {error}"[:LONGEST]
        own = Failure(rank(), socket.gethostname(), said, time.time())
        store.append(PLACE, json.dumps(asdict(own)) + "\n")
        if lost:
            reason, is_told = _first_reason(store)
            notes.append(reason)
            if not is_told:
                notes.append(stacks_of_all(error))
        elif rank() == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            _listen(store, None)  # the store ends with this process, and other ranks still read it
    except Exception as failure:
        notes.append(f"{UNREAD}: {failure}")


def _first_reason(store: Any) -> tuple[str, bool]:
    """What the other ranks have told, and whether one of them has failed by itself."""
    found = _listen(store, "reason")
    for each in found:
        if each.reason is not None and each.rank != rank():
            return f"rank {each.rank} ({each.host}) failed first: {each.reason}", True
    silent = sorted({*range(world_size())} - {each.rank for each in found})
    if not silent:
        both = "every rank has lost its connection to another one, and none has failed by itself"
        return both, False
    who = f"rank {silent[0]} has" if len(silent) == 1 else f"ranks {silent[:9]} have"
    return (
        f"no rank has said why; {who} said nothing: killed, hanging, cut off or busy. The log of "
        "such a rank says more: that of its launcher, or of RankLogs"
    ), False


def _listen(store: Any, until: str | None) -> list[Failure]:
    """The failures told so far, once all ranks have told theirs or no more arrive."""
    count, found = 0, list[Failure]()
    began = changed = time.monotonic()
    while True:
        lines = store.get(PLACE).decode().splitlines()
        now = time.monotonic()
        if len(lines) > count:
            count, changed = len(lines), now
            said = (Failure(**json.loads(line)) for line in lines)
            found = [each for each in said if each.at >= BEGAN]
        if until and any(each.reason is not None for each in found):
            return found
        if len({each.rank for each in found}) == world_size():
            return found
        if now > began + PATIENCE or now > changed + QUIET:
            return found
        time.sleep(0.02)
