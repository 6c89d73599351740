"""A deadline for this process, kept whatever its main thread does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from threading import Thread
from typing import NoReturn


class Watchdog:
    """Ends the process so many seconds after a signal, whatever the main thread does.

    It hears of signals by a socket that the system's handler writes to. Python's has to wait until
    the main thread comes back from C, and a collective of ranks may never do.
    """

    def __init__(self, signals: tuple[signal.Signals, ...], deadline: float) -> None:
        """Begin to watch."""
        _mute_children()
        self._signals, self._deadline = signals, deadline
        self._source, self._sink = socket.socketpair()
        self._sink.setblocking(False)
        sink = self._sink.fileno()
        self._before = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        self._thread = Thread(target=self._watch, name="StopOnSignal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no longer."""
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
            if self._before != -1:  # somebody else wants to know as well, such as asyncio
                with suppress(OSError):
                    os.write(self._before, bytes([number]))
            if not first and number in self._signals:
                first, end = number, time.monotonic() + self._deadline

    def _end(self, number: int) -> NoReturn:
        try:
            kill_children()
            text = f"StopOnSignal: {self._deadline:g} s after the signal, the process is ended\n"
            os.write(2, text.encode())  # the main thread may hold the locks of logging
        finally:
            os._exit(128 + number)


def kill_children() -> None:
    """Kill the processes of multiprocessing; loader workers would only notice seconds later."""
    for child in multiprocessing.active_children():
        child.kill()


@cache
def _mute_children() -> None:
    # Those that are forked would write their own signals to the socket of their parent.
    mute: Callable[[], object] = partial(signal.set_wakeup_fd, -1)
    os.register_at_fork(after_in_child=mute)
