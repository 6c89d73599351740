"""The process that copies: it alone talks to the store, and it does nothing of the training.

A store's library draws from Python's global random generator before it retries (botocore does),
keeps threads and large buffers, and may hang. In the training's process that would change the run,
or slow it down. So it runs in a process of its own, which ends with the training. The process
reports in lines of JSON.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from .copies import Copies
from .fetching import StoreError, again, take_over
from .store import Store, shown
from .uploader import Uploader

logger = logging.getLogger("camshaft")

LONGEST_WAIT = 300.0
"""The most seconds between two attempts while the store fails."""
ERRORS = (FileExistsError, BlockingIOError, StoreError, ValueError, OSError)
"""By name: the errors that the training may be asked to raise."""


def main() -> None:
    """Copy by the settings in the first line of the input, until its end or a message to finish."""
    global _lines  # what a library prints is dropped
    parent, _lines = os.getppid(), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    settings = json.loads(sys.stdin.readline())
    logger.setLevel(logging.INFO)
    logger.addHandler(Telling())
    work = Copying(settings)
    Thread(target=work.listen, daemon=True).start()
    Thread(target=end_with, args=(parent,), daemon=True).start()
    try:
        work.run()
    except BaseException as error:
        kind = next((each for each in ERRORS if isinstance(error, each)), None)
        text = str(error) if kind else type(error).__name__
        text = work.store.without_secrets(text) if work.store else shown(text)
        tell(error=(kind or OSError).__name__, text=text)
    os._exit(0)  # threads of the store's library are not waited for


def end_with(parent: int) -> None:
    """End when the training ends: the input may stay open, since loaders may hold its other end."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


class Copying:
    """Copies one run's directory to a store."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.go, self.finish = Event(), Event()
        self.store: Store | None = None
        self.uploader: Uploader | None = None
        self._failures = int(settings["failing"])

    def run(self) -> None:
        """Fetch if the run begins; after that, copy what is new."""
        settings, directory = self.settings, Path(self.settings["directory"])
        store = self.store = Store(settings["url"], settings["options"])
        if settings["fresh"]:
            self._begin(store, directory)
        uploader = self.uploader = Uploader(store, directory, settings["logs"])
        tell(ready=True)
        self.go.wait()
        while True:
            is_last = self.finish.is_set()
            if self._copy(store, uploader) and is_last:
                break

    def listen(self) -> None:
        """Read the training's messages; end when the training ends."""
        for line in sys.stdin:
            self.go.set()
            if line.strip() == "finish":
                self.finish.set()
                with suppress(RuntimeError):  # the other thread has just noted a copy
                    tell(behind=self.uploader.behind() if self.uploader else "nothing is copied")
        os._exit(1)

    def _begin(self, store: Store, directory: Path) -> None:
        tell(asking=True)
        copies = again(store, Copies)
        tell(answered=True)
        resume = self.settings["resume"]
        if not resume and copies.is_used:
            raise FileExistsError(
                f"{store.url} holds checkpoints of an earlier run; pass resume=True to Checkpoint "
                "to go on with it, or choose another address for a new run"
            )
        take_over(store, directory, self.settings["logs"], copies, is_new=not resume)

    def _copy(self, store: Store, uploader: Uploader) -> bool:
        """Copy what is new, and wait a while; True if everything is copied."""
        more = False
        try:
            if self._failures:
                store.connect()  # such as with new credentials
                uploader.begin()
            if uploader.is_new() or self.finish.is_set():
                more = uploader.step()
        except FileExistsError:
            raise
        except Exception as error:
            if not self._failures:
                logger.warning(FAILS, store.url, store.said(error))
            self._failures += 1
        else:
            if self._failures:
                logger.warning("%s takes copies again", store.url)
            self._failures = 0
        tell(behind=uploader.behind())
        if not more:
            self._wait()
        return not more and not self._failures

    def _wait(self) -> None:
        """Wait until the next look at the directory; longer while the store fails."""
        interval = self.settings["interval"]
        if self._failures and self.finish.is_set():
            time.sleep(min(0.5 * 2 ** min(self._failures, 5), 5.0))
        else:
            most = max(LONGEST_WAIT, interval)
            self.finish.wait(min(interval * 2 ** min(self._failures, 9), most))


FAILS = (
    "%s cannot be used now (%s); the run goes on, and what is on the disk is copied when the store "
    "can be used again"
)


class Telling(logging.Handler):
    """Sends log messages to the training, whose logger writes them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send a message."""
        tell(level=record.levelno, text=record.getMessage())


_one_at_a_time = Lock()
_lines = sys.stdout


def tell(**message: Any) -> None:
    """Write a line for the training."""
    with _one_at_a_time:
        _lines.write(json.dumps(message) + "\n")
        _lines.flush()
