"""Counts what a process sends by torch.distributed, whoever asks for it."""

import sys
from collections import Counter
from dataclasses import dataclass

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

GATHERS = ("allgather", "allgather_base", "gather")
OURS, METRICS, TORCH = "camshaft", "torchmetrics", "torch"


@dataclass(frozen=True)
class Message:
    """One collective, or one tensor that is sent to another rank."""

    kind: str
    bytes: int
    """What this rank contributes; what it passes on for others is left out."""
    received: int
    """What this rank gets of all ranks together, its own included."""
    by: str
    """Who asks for it: Camshaft, torchmetrics, or torch itself, as for the gradients of DDP."""
    where: str


class Messages(TorchDispatchMode):
    """Within a `with` block, every message of this thread, by the place in the run at which it is.

    torch's own dispatcher calls this, so messages that C++ sends for DDP are counted too.
    """

    def __init__(self, rank=0):
        super().__init__()
        self.rank, self.place = rank, 0
        self.found: dict[object, list[Message]] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace in ("c10d", "_c10d_functional"):
            kind = function._schema.name.split("::")[1].strip("_")
            by, where = asked_by()
            message = Message(kind, self._sent(kind, args), received(kind, args), by, where)
            self.found.setdefault(self.place, []).append(message)
        return function(*args, **(kwargs or {}))

    def _sent(self, kind, args):
        if kind in ("recv", "recv_any_source", "barrier"):
            return 0
        if kind == "broadcast" and args[2] != self.rank:
            return 0
        return bytes_of(args[1] if kind in GATHERS else args[0])

    def of(self, *by):
        """By place: the number of messages and their bytes."""
        chosen = {
            place: [each for each in messages if not by or each.by in by]
            for place, messages in self.found.items()
        }
        return {
            place: (len(messages), sum(each.bytes for each in messages))
            for place, messages in chosen.items()
            if messages
        }

    def listed(self):
        """For people: who sends how often, by place."""
        return {
            place: dict(Counter(f"{m.by} {m.kind} {m.bytes} B, {m.where}" for m in messages))
            for place, messages in self.found.items()
        }


def received(kind, args):
    """The bytes that come in."""
    return 0 if kind in ("send", "barrier") else bytes_of(args[0])


def bytes_of(given):
    """The bytes of all tensors in lists of lists."""
    tensors = [each for each in tree_leaves(given) if isinstance(each, Tensor)]
    return sum(each.numel() * each.element_size() for each in tensors)


def asked_by():
    """Who has asked for the message at hand, and the function outside the room of ranks."""
    frame, ours, by = sys._getframe(2), False, TORCH
    while frame is not None:
        file = frame.f_code.co_filename
        if "/engine/ranks/" in file:
            ours, by = True, OURS
        elif ours and not file.endswith("contextlib.py"):
            return by, f"{file.rpartition('/')[2]}:{frame.f_code.co_name}"
        elif "/torchmetrics/" in file:
            by = METRICS
        frame = frame.f_back
    return by, ""
