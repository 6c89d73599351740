"""A deadline for this process, even if its main thread hangs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from threading import Thread
from typing import NoReturn


class Watchdog:
    """Ends the process `deadline` seconds after a signal, even if the main thread hangs.

    The operating system's signal handler writes to a socket that a thread reads. Python's own
    signal handlers run only when the main thread returns from C, and a collective may never return.
    """

    def __init__(
        self, signals: tuple[signal.Signals, ...], deadline: float, exit_code: int | None = None
    ) -> None:
        _mute_children()
        self._signals, self._deadline, self._exit_code = signals, deadline, exit_code
        self._source, self._sink = socket.socketpair()
        self._sink.setblocking(False)
        sink = self._sink.fileno()
        self._before = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        self._thread = Thread(target=self._watch, name="StopOnSignal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        signal.set_wakeup_fd(self._before)
        self._sink.send(b"\0")  # no signal has this number
        self._thread.join()
        self._source.close()
        self._sink.close()

    def _watch(self) -> None:
        first, end = 0, 0.0
        while True:
            self._source.settimeout(max(end - time.monotonic(), 0.001) if first else None)
            try:
                (number,) = self._source.recv(1)
            except TimeoutError:
                self._end(first)
            if number == 0:
                return
            if self._before != -1:  # another library, such as asyncio, reads it too
                with suppress(OSError):
                    os.write(self._before, bytes([number]))
            if not first and number in self._signals:
                first, end = number, time.monotonic() + self._deadline

    def _end(self, number: int) -> NoReturn:
        try:
            kill_children()
            say(f"StopOnSignal: {self._deadline:g} s after the signal, the process is ended")
        finally:
            os._exit(128 + number if self._exit_code is None else self._exit_code)


def say(line: str) -> None:
    """Write a line to standard error at once: the main thread may hold the locks of logging.

    Where standard error was closed as the process began, a file of the run may have its number.
    """
    if sys.__stderr__ is not None:
        with suppress(OSError):
            os.write(2, f"{line}\n".encode())


def kill_children() -> None:
    """Kill the processes of multiprocessing: loader workers would notice only seconds later."""
    for child in multiprocessing.active_children():
        child.kill()


@cache
def _mute_children() -> None:
    # Forked processes would write their own signals to the socket of their parent.
    mute: Callable[[], object] = partial(signal.set_wakeup_fd, -1)
    os.register_at_fork(after_in_child=mute)
