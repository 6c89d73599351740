"""Where each rank is when one of them has waited too long: the stacks of all, in one note.

A rank asks in the store of the process group. A thread of each rank answers for the thread that
trains, also while that one hangs; a rank whose message has failed answers by its error.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from traceback import StackSummary, walk_stack, walk_tb
from typing import Any
from uuid import uuid4

from .groups import default_store, rank, world_size

PLACE = "camshaft/stacks"
FRESH, PATIENCE = 30.0, 3.0
"""Seconds in which ranks that ask share one note, and in which ranks may answer."""
DEEPEST, SHOWN = 24, 8
"""The most frames of a stack, and the most different stacks in a note."""
SENDING = ("distributed/distributed_c10d.py", "ranks/communication.py")
BACKWARD = ("backward", "_engine_run_backward")  # wait in C++ for messages of DDP and FSDP2
RECORDERS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")

Position = dict[str, Any]
"""The rank, its iteration, the function in which it waits for others, where it is, the stack."""


def answer(store: Any, thread: int, answered: str) -> str:
    """Answer for a thread of this rank if a rank has asked since; return the last question."""
    if not store.check([PLACE]) or (asked := store.get(PLACE).decode()) == answered:
        return answered
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    _tell(store, asked, _position([*walk_stack(frame)][::-1]))
    return str(asked)


def stacks_of_all(error: BaseException | None = None) -> str:
    """Ask all ranks where they are; this one is where its error was raised.

    The first rank that asks makes the note, and the others read it.

    Raises:
        RuntimeError: The store has ended.
    """
    store, question = default_store(), f"{uuid4().hex} {time.time()}"
    asked = store.get(PLACE).decode() if store.check([PLACE]) else ""
    if not asked or time.time() - float(asked.split()[1]) > FRESH:
        asked = store.compare_set(PLACE, asked, question).decode()
    if error is not None:
        own = _position([*walk_tb(error.__traceback__)])
        _tell(store, asked, {**own, "waits_in": own["waits_in"] or "a message of torch"})
    found, note = dict[int, Position](), f"{PLACE}/{asked}/note"
    # The rank that asks waits for those that never answer; the others wait for its note after that.
    end = time.monotonic() + (PATIENCE if asked == question else 2 * PATIENCE)
    while len(found) < world_size() and time.monotonic() < end:
        time.sleep(0.05)
        if asked == question:
            store.append(f"{PLACE}/{asked}", "")  # to read what is not there would wait for it
            said = map(json.loads, store.get(f"{PLACE}/{asked}").decode().splitlines())
            # An error says more than a thread.
            found = {each["rank"]: each for each in sorted(said, key=_is_waiting)}
        elif store.check([note]):
            return str(store.get(note).decode())
    if asked != question:
        return "another rank has asked all ranks where they are, and has not told it"
    store.set(note, _note(found))
    return _note(found)


def _position(frames: list[tuple[Any, int]]) -> Position:
    """The position of this rank by the frames and lines of a thread, outermost first."""
    iteration, event, waits_in = 0, "", ""
    for frame, _ in frames:
        file, name = frame.f_code.co_filename.replace(os.sep, "/"), frame.f_code.co_name
        if name == "_run" and file.endswith("engine/loop.py"):
            iteration = iteration or frame.f_locals["state"].iteration  # of the outermost run
        if name == "fire" and file.endswith("engine/moments.py"):
            event = f", {frame.f_locals['self'].signal.event!r}"
        if file.endswith(SENDING) or name in BACKWARD:
            waits_in = name
        elif "/torch/" not in file:
            waits_in = ""
    where = f"{socket.gethostname()}, iteration {iteration}{event}"
    place = f"{next(filter(None, map(os.environ.get, RECORDERS)), '')}{rank()}"
    where += f"; torch's flight recorder: {place}" if os.path.exists(place) else ""
    calls = StackSummary.extract(iter(frames[-DEEPEST:]))
    stack = "\n".join(f"  {each.filename}:{each.lineno} {each.name}: {each.line}" for each in calls)
    own = {"rank": rank(), "iteration": iteration, "waits_in": waits_in}
    return {**own, "where": where, "stack": stack}


def _note(found: dict[int, Position]) -> str:
    """The stacks, those of ranks that are behind first; ranks with the same stack share one."""
    alike: dict[tuple[int, str], list[Position]] = {}
    for _, each in sorted(found.items()):
        alike.setdefault((each["iteration"], each["stack"]), []).append(each)
    groups = sorted(
        alike.values(), key=lambda each: (each[0]["iteration"], _is_waiting(each[0]), len(each))
    )
    texts = [f"where {len(found)} of {world_size()} ranks are, those that are behind first:"]
    if silent := sorted({*range(world_size())} - found.keys()):
        texts.append(f"no answer of ranks {silent[:9]}: ended, killed, stopped or cut off")
    for first, *others in groups[:SHOWN]:
        as_many = f", and {len(others)} more" if others else ""
        waits = f"waits for other ranks in {first['waits_in']}" if first["waits_in"] else "is here"
        texts.append(f"rank {first['rank']} ({first['where']}){as_many} {waits}:\n{first['stack']}")
    return "\n".join(texts)


def _tell(store: Any, asked: str, position: Position) -> None:
    store.append(f"{PLACE}/{asked}", json.dumps(position) + "\n")


def _is_waiting(position: Position) -> bool:
    return bool(position["waits_in"])
