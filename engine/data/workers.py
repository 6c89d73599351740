"""The workers of a loader: new seeds for each batch, and signals left to the main process."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any

from torch.utils.data import DataLoader, get_worker_info

from ..state import seed_all

STOPPING = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
"""The signals by which somebody asks a job to end."""


class Seeded:
    """A data set in a worker, whose random numbers begin anew with each batch."""

    def __init__(self, dataset: Any) -> None:
        """Read from `dataset`."""
        self.dataset = dataset

    def __getitems__(self, batch: tuple[int, list[Any]]) -> list[Any]:
        """The samples of a batch."""
        seed, indices = batch
        seed_all(seed)
        if getattr(self.dataset, "__getitems__", None):
            return self.dataset.__getitems__(indices)  # type: ignore[no-any-return]
        return [self.dataset[index] for index in indices]

    def __getitem__(self, one: tuple[int, Any]) -> Any:
        """The sample of a loader that makes no batches, or one that is a batch by itself."""
        seed, index = one
        seed_all(seed)
        return self.dataset[index]


@dataclass(frozen=True)
class Preparation:
    """What each worker does before its first batch.

    The signals that the main process deals with are left to it: a group's signal reaches the
    workers as well, and their death would end the run before it can save.
    """

    own: Callable[[int], object] | None
    """The loader's `worker_init_fn`, which sees the data set that it knows."""
    caught: frozenset[int]
    """Blocked already in a worker that was forked."""

    def __call__(self, worker: int) -> None:
        """Leave the signals alone, then do what the loader's owner wants."""
        for number in self.caught - {signal.SIGTERM}:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self.caught - {signal.SIGTERM})
        if signal.SIGTERM in self.caught:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # in one that was not forked
            Thread(target=_end_with_parent, daemon=True).start()
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, Seeded):
            object.__setattr__(info, "dataset", info.dataset.dataset)  # it refuses by itself
        if self.own is not None:
            self.own(worker)


def _end_with_parent() -> None:
    """End this worker when its parent asks, as one that gives up on it does; nobody else may."""
    parent = (
        multiprocessing.parent_process()
    )  # with a fork server, not the process that made this one
    while parent is not None and signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent.pid:
        pass
    os._exit(0)


def is_forked(data: DataLoader[Any]) -> bool:
    """True if the workers of this loader are forked."""
    context: Any = data.multiprocessing_context or multiprocessing
    return context.get_start_method() == "fork"  # type: ignore[no-any-return]


@contextmanager
def blocked(signals: frozenset[int]) -> Generator[None]:
    """Hold signals back: what is born meanwhile is never without a plan for them."""
    if not signals:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def caught_signals() -> frozenset[int]:
    """Those of the signals for which this process has a handler of its own."""
    if not hasattr(signal, "sigwaitinfo"):  # nobody could tell there who has sent a signal
        return frozenset()
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    usual = signal.default_int_handler
    return frozenset(n for n, each in handlers.items() if callable(each) and each is not usual)
