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
from operator import attrgetter
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, TextIO

from ...checkpoint import BrokenCheckpoint, Checkpoints, Directory, Manifest
from .fetching import StoreError, again, fetch_file, fetch_logs, join, take_over, tell_of_broken
from .listing import StoreListing, store_name_of
from .parts import Host
from .store import Store, shown
from .uploader import Uploader

logger: logging.Logger = logging.getLogger("camshaft")

LONGEST_WAIT = 300.0
"""The most seconds between two attempts while the store fails."""
ERRORS = (FileExistsError, BlockingIOError, StoreError, BrokenCheckpoint, ValueError, OSError)
"""By name: the errors that the training may be asked to raise."""


def main(lines: TextIO) -> None:
    """Copy by the settings that the input begins with, until its end or a message to finish."""
    global _lines
    parent, _lines = os.getppid(), lines
    settings = json.loads(sys.stdin.readline())
    logger.setLevel(logging.INFO)
    logger.addHandler(Telling())
    Thread(target=end_with, args=(parent,), daemon=True).start()
    store = None
    try:
        store = Store(settings["url"], settings["options"])
        found: dict[str, Any] = {}
        if settings["fresh"] and settings["hosts"] is None:
            fetch_newer(store, settings)
        elif settings["fresh"] and settings["hosts"]["number"] == 0:
            found = look_for(store, settings)
        tell(ready=True, **found)
        CopyLoop(store, settings).run()
    except BaseException as error:
        tell(**said_of(error, store))
    os._exit(0)  # threads of the store's library are not waited for


def said_of(error: BaseException, store: Store | None) -> dict[str, str]:
    """The message about an error that the training is asked to raise."""
    kind = next((each for each in ERRORS if isinstance(error, each)), None)
    text = str(error) if kind else type(error).__name__
    if isinstance(error, BrokenCheckpoint):
        text = error.reason
    text = store.without_secrets(text) if store else shown(text)
    return {"error": (kind or OSError).__name__, "text": text}


def end_with(parent: int) -> None:
    """End when the training ends: the input may stay open, since loaders may hold its other end."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def fetch_newer(store: Store, settings: dict[str, Any]) -> None:
    """Fetch what the store has and the directory has not, for a run that begins.

    Raises:
        FileExistsError: The run is a new one, and the store holds another.
    """
    listing = listing_of(store, settings)
    is_new = not settings["resume"]
    take_over(store, Path(settings["directory"]), settings["logs"], listing, is_new=is_new)


def look_for(store: Store, settings: dict[str, Any]) -> dict[str, Any]:
    """The manifests in the store, for hosts that share no directory; the logs come to the first.

    Raises:
        FileExistsError: The run is a new one, and the store holds another.
        ValueError: The store holds checkpoints, and all are broken.
    """
    listing = listing_of(store, settings)
    directory, is_new = Path(settings["directory"]), not settings["resume"]
    run = join(store, directory, listing, is_new=is_new, needs_run_file=False)
    if not is_new:
        disk = Checkpoints(directory)
        reached = max((each.iteration for each in listing.values()), default=-1)
        is_all = not listing.manifests and not disk
        tell_of_broken(listing, listing.broken, reached, is_all=is_all)
        # Logs are of the furthest checkpoint, be it here or there.
        here, there = [each.manifest for each in disk], [*listing.manifests.values()]
        furthest = max([*there, *here], key=attrgetter("start", "iteration"), default=None)
        if furthest in there:
            fetch_logs(listing, Directory(directory), settings["logs"])
    found = [[m.to_json(), [*listing.objects[name]]] for name, m in listing.manifests.items()]
    return {"found": found, "run": run}


def listing_of(store: Store, settings: dict[str, Any]) -> StoreListing:
    """What the store holds.

    Raises:
        FileExistsError: The run is a new one, and the store holds another.
    """
    tell(asking=True)
    listing = again(store, StoreListing)
    tell(answered=True)
    if listing.is_used and not settings["resume"]:
        raise FileExistsError(
            f"{store.url} holds checkpoints of an earlier run; pass resume=True to Checkpoint "
            "to go on with it, or choose another address for a new run"
        )
    return listing


class CopyLoop:
    """Copies one run's directory to a store."""

    def __init__(self, store: Store, settings: dict[str, Any]) -> None:
        self._store, self._interval = store, settings["interval"]
        self._listing: StoreListing | None = None
        """What the store held at the start, for a run that fetches files from there."""
        host = settings["hosts"] and Host(**settings["hosts"])
        outbox = settings["outbox"] and Path(settings["outbox"])
        where = store, Path(settings["directory"]), settings["logs"]
        self._uploader = Uploader(*where, host, outbox)
        self._go, self._finish = Event(), Event()
        self._failures = int(settings["failing"])

    def run(self) -> None:
        """Wait for the first message; copy new files until told to finish, then copy the rest."""
        Thread(target=self._listen, daemon=True).start()
        self._go.wait()
        while True:
            is_last = self._finish.is_set()
            if self._copy() and is_last:
                break

    def _listen(self) -> None:
        """Read the training's messages; end when the training ends."""
        for line in sys.stdin:
            if line.startswith("{"):
                self._fetch(json.loads(line))
                continue
            self._go.set()
            if line.strip() == "finish":
                self._finish.set()
                tell(behind=self._uploader.behind())
        os._exit(1)

    def _fetch(self, order: dict[str, Any]) -> None:
        """Fetch a file of a checkpoint before the run begins."""
        try:
            if self._listing is None:
                self._listing = again(self._store, StoreListing)
            manifest = Manifest.of_json(order["manifest"])
            place, path = store_name_of(manifest), Path(order["fetch"])
            fetch_file(self._listing, place, manifest, order["name"], path)
            tell(fetched=True)
        except Exception as error:
            tell(fetched=False, **said_of(error, self._store))

    def _copy(self) -> bool:
        """Copy new files, and wait a while; True if everything is copied."""
        store, more = self._store, False
        try:
            if self._failures:
                store.connect()  # such as with new credentials
                self._uploader.begin()
            self._uploader.bring_results()
            if self._uploader.has_missing() or self._finish.is_set():
                more = self._uploader.step()
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
        tell(behind=self._uploader.behind())
        if not more:
            self._wait()
        return not more and not self._failures

    def _wait(self) -> None:
        """Wait until the next look at the directory; longer while the store fails."""
        if self._failures and self._finish.is_set():
            time.sleep(min(0.5 * 2 ** min(self._failures, 5), 5.0))
        else:
            most = max(LONGEST_WAIT, self._interval)
            self._finish.wait(min(self._interval * 2 ** min(self._failures, 9), most))


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
_lines: TextIO = sys.stdout


def tell(**message: Any) -> None:
    """Write a line for the training."""
    with _one_at_a_time:
        _lines.write(json.dumps(message) + "\n")
        _lines.flush()
