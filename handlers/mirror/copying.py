"""The process that copies: all that talks to the store runs here, and nothing of the training.

A store's library draws from Python's global random generator before it tries again (botocore does),
keeps threads and large buffers, and may hang. In the process of the training that would change the
run, or slow it; so it has one of its own, which ends with it. What it has to say are lines of JSON.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from ..checkpoint import checkpoints
from .copies import Copies, note_run
from .fetching import StoreError, again, join, take_over
from .store import Store, shown
from .uploader import Uploader

logger = logging.getLogger("camshaft")

LONGEST_WAIT = 300.0
"""Seconds between two attempts, at most, while the store fails."""
SILENCE = 600.0
"""Seconds after which an operation of the store counts as one that hangs."""
ERRORS = (FileExistsError, BlockingIOError, StoreError, ValueError, OSError)
"""What the training may be told to raise, by name."""


def main() -> None:
    """Copy as the first line of the input says, until its end, or until it says to finish."""
    global _lines  # what a library prints goes nowhere
    parent, _lines = os.getppid(), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    settings = json.loads(sys.stdin.readline())
    logger.setLevel(logging.INFO)
    logger.addHandler(Telling())
    work = Copying(settings)
    Thread(target=work.listen, daemon=True).start()
    Thread(target=work.look_after, args=(parent,), daemon=True).start()
    try:
        work.run()
    except BaseException as error:
        kind = next((each.__name__ for each in ERRORS if isinstance(error, each)), "OSError")
        tell(error=kind, text=work.said(error))
    os._exit(0)  # threads of the store's library are not waited for


class Copying:
    """Copies one run's directory to a store."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.directory = Path(settings["directory"])
        self.logs: list[str] = settings["logs"]
        self.settings = settings
        self.go, self.finish = Event(), Event()
        self.store: Store | None = None
        self.uploader: Uploader | None = None
        self._is_busy = self._is_ready = False
        self._failures = 0

    def run(self) -> None:
        """Begin; once the run has, copy what is new."""
        with self._busy():
            store = self.store = Store(self.settings["url"], self.settings["options"])
            uploader = self.uploader = Uploader(store, self.directory, self.logs)
            has_begun = self._begin(store, uploader)
        self._is_ready = True
        tell(ready=True)
        self.go.wait()
        is_done = False
        while not is_done:
            is_last = self.finish.is_set()
            is_done = self._copy(store, uploader, has_begun) and is_last
            has_begun = has_begun or not self._failures

    def said(self, error: BaseException) -> str:
        """What may be shown of an error."""
        if self.store is None:
            return shown(str(error)) if isinstance(error, ERRORS) else type(error).__name__
        if isinstance(error, ERRORS):
            return self.store.without_secrets(str(error))
        return self.store.said(error)

    def listen(self) -> None:
        """Read what the training says; end with it."""
        for line in sys.stdin:
            self.go.set()
            if line.strip() == "finish":
                self.finish.set()
                with suppress(RuntimeError):  # the other thread has just noted a copy
                    tell(behind=self.uploader.behind() if self.uploader else "nothing is copied")
        os._exit(1)

    def look_after(self, parent: int) -> None:
        """End with the training, and when the store hangs: then a new process may do better.

        The end of the input tells the first too, but workers of a loader may hold its other end.
        """
        while os.getppid() == parent:
            time.sleep(0.5)
            if self._is_busy and self.store and time.monotonic() - self.store.active > SILENCE:
                told = f"{self.store.url} has not answered for {SILENCE:g} s"
                if self._is_ready:
                    logger.warning("%s; the run goes on, and the next save tries again", told)
                else:
                    tell(error="StoreError", text=told)
                break
        os._exit(1)

    def _begin(self, store: Store, uploader: Uploader) -> bool:
        """See whose run the store holds, and fetch what is newer; False if it cannot be read."""
        resume, fresh = self.settings["resume"], self.settings["fresh"]
        try:
            copies = self._first_look(store)
        except StoreError as error:
            if fresh and not (resume and checkpoints(self.directory)):
                raise
            self._fail(str(error))
            return False
        if fresh and not resume and (copies or copies.broken):
            raise FileExistsError(
                f"{store.url} holds checkpoints of an earlier run; pass resume=True to Checkpoint "
                "to go on with it, or choose another address for a new run"
            )
        if fresh:
            run, _ = take_over(store, self.directory, self.logs, copies, is_new=not resume)
        else:
            run = join(store, self.directory, copies)
        again(store, partial(note_run, run=run))
        uploader.begin(copies)
        return True

    def _first_look(self, store: Store) -> Copies:
        """What the store holds; a library may try again for minutes, and the run waits.

        Raises:
            StoreError: The store cannot be read, or has not answered in time.
        """
        found = Future[Copies]()

        def look() -> None:
            try:
                found.set_result(again(store, Copies))
            except Exception as error:
                found.set_exception(error)

        Thread(target=look, daemon=True).start()
        seconds = self.settings["wait"]
        try:
            return found.result(seconds)
        except TimeoutError:
            raise StoreError(f"{store.url} has not answered for {seconds:g} s") from None

    def _copy(self, store: Store, uploader: Uploader, has_begun: bool) -> bool:
        """Copy what is new, and wait a while; True if all is there."""
        more = False
        try:
            with self._busy():
                if self._failures or not has_begun:
                    copies = Copies(store)
                    note_run(store, join(store, self.directory, copies))
                    uploader.begin(copies)
                if uploader.is_new() or self.finish.is_set():
                    more = uploader.step()
        except FileExistsError:
            raise
        except Exception as error:
            self._fail(store.said(error))
        else:
            if self._failures:
                logger.warning("%s takes copies again", store.url)
            self._failures = 0
        tell(behind=uploader.behind())
        if not more:
            self._wait()
        return not more and not self._failures

    def _fail(self, said: str) -> None:
        if not self._failures:
            logger.warning(
                "%s cannot be used now (%s); the run goes on, and what is on the disk is copied "
                "when the store can be used again",
                *(self.settings["shown"], said),
            )
        self._failures += 1

    def _wait(self) -> None:
        """Wait until the next look at the directory; longer while the store fails."""
        if not self._failures:
            if not self.finish.is_set():
                self.finish.wait(self.settings["interval"])
        elif self.finish.is_set():
            time.sleep(min(0.5 * 2 ** min(self._failures, 5), 5.0))
        else:
            most = max(LONGEST_WAIT, self.settings["interval"])
            self.finish.wait(min(self.settings["interval"] * 2 ** min(self._failures, 9), most))

    @contextmanager
    def _busy(self) -> Generator[None, None, None]:
        if self.store is not None:
            self.store.active = time.monotonic()
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False


class Telling(logging.Handler):
    """Hands messages to the training, whose logger gives them out."""

    def emit(self, record: logging.LogRecord) -> None:
        """Tell a message."""
        tell(level=record.levelno, text=record.getMessage())


_one_at_a_time = Lock()
_lines = sys.stdout


def tell(**told: Any) -> None:
    """Write a line for the training."""
    with _one_at_a_time:
        _lines.write(json.dumps(told) + "\n")
        _lines.flush()
