"""The workers of a loader: new seeds for each batch, and signals left to the main process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any
from weakref import proxy

import torch
from torch.utils.data import DataLoader, get_worker_info

from ...state import seed_all
from .samples import Samples, Whole

_error_if_any_worker_fails: Any = getattr(
    getattr(torch, "_C", None), "_error_if_any_worker_fails", lambda: None
)

STOPPING = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
"""The signals that ask a job to end."""
END: int = getattr(signal, "SIGRTMAX", 0)
"""The signal by which the main process ends its workers; 0 where the system has too few."""


class Seeded(Samples):
    """A data set in a worker; it seeds the random generators before each batch."""

    def __getitems__(self, batch: tuple[int, list[Any]]) -> list[Any] | Whole:
        seed, indices = batch
        seed_all(seed)
        return super().__getitems__(indices)

    def __getitem__(self, one: tuple[int, Any]) -> Any:
        """One sample, for a loader that makes no batches."""
        seed, index = one
        seed_all(seed)
        return super().__getitem__(index)


@dataclass(frozen=True)
class Preparation:
    """Prepares a worker before its first batch: a `worker_init_fn`.

    A signal to the process group also reaches the workers. They ignore it, since a dead worker
    would end the run before it can save. So the main process has to end its workers by a signal of
    another number: see `end_by_own_signal`.
    """

    own: Callable[[int], object] | None
    """The user's `worker_init_fn`, which sees the user's own data set."""
    caught: frozenset[int]
    """The signals that the main process handles; a forked worker starts with them blocked."""

    def __call__(self, worker: int) -> None:
        """Leave the signals to the main process, then call the user's function."""
        if self.caught:
            signal.pthread_sigmask(signal.SIG_BLOCK, {END})
            Thread(target=_end_when_told, daemon=True).start()
        for number in self.caught:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self.caught)
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, Seeded):
            object.__setattr__(info, "dataset", info.dataset.dataset)  # its own __setattr__ refuses
        if self.own is not None:
            self.own(worker)


def _end_when_told() -> None:
    """End this worker at the signal that only its parent sends."""
    signal.sigwait({END})
    os._exit(0)


def end_by_own_signal(batches: Iterator[Any]) -> None:
    """Let torch and multiprocessing end these new workers by `END`, which only workers get."""
    for worker in getattr(batches, "_workers", ()):
        process: Any = worker._popen
        end = type(process)._send_signal
        # A proxy: a reference cycle would keep the process's pipes open.
        process.terminate = partial(end, proxy(process), END)


def named(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches of workers; if a worker dies, the error says so.

    A killed worker first loses its connections and ends a moment later. In between, torch sees it
    alive and reports a refused connection.

    Raises:
        RuntimeError: A worker has died.
    """
    try:
        yield from batches
    except (OSError, EOFError) as error:
        if "in DataLoader worker process" not in str(error):  # an error of the data set
            _raise_if_a_worker_dies(error)
        raise


def _raise_if_a_worker_dies(error: Exception, seconds: float = 1.0) -> None:
    """Wait for the death of a worker, at most this many seconds; raise torch's error for it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            _error_if_any_worker_fails()
            time.sleep(0.01)  # the handler of SIGCHLD may raise the same error here
        except RuntimeError as died:
            raise died from error


def is_forked(data: DataLoader[Any]) -> bool:
    """True if the workers of this loader are forked."""
    context: Any = data.multiprocessing_context or multiprocessing
    return context.get_start_method() == "fork"  # type: ignore[no-any-return]


@contextmanager
def blocked(signals: frozenset[int]) -> Generator[None]:
    """Block signals in a `with` block, so that new processes never run without a handler."""
    if not signals:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def caught_signals() -> frozenset[int]:
    """The stopping signals for which this process has its own handler."""
    if not END:  # macOS has no such signals
        return frozenset()
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    usual = signal.default_int_handler
    return frozenset(n for n, each in handlers.items() if callable(each) and each is not usual)
