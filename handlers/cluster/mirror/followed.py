"""A run that is followed by the copies in its store, on a machine that does not see its directory.

A checkpoint is fetched when it is its turn. A result goes into the store, from where the run's
`Mirror` brings it to the directory: there it is decided whether it counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from ...checkpoint import BrokenCheckpoint, Directory
from ...files import locked, make_directory, remove_path, text_of
from ..results import COMPLETED, FOLDER, Found, Results, Which, asked_in, name_of
from .fetching import StoreError, again, fetch_checkpoint, undrawn
from .listing import StoreListing
from .store import Store, check_address, shown

logger: logging.Logger = logging.getLogger("camshaft")

AGAIN = 60.0
"""Seconds until a damaged copy is tried again: a machine that has the checkpoint mends it."""


class FollowedStore:
    """A run that is followed in its store."""

    latest: float = 5.0  # a look costs requests

    def __init__(self, url: str, options: Mapping[str, Any], name: str) -> None:
        """Ask nothing yet.

        Raises:
            ModuleNotFoundError: fsspec, or its library for this store, is not installed.
            TypeError: The name is no text.
            ValueError: The name cannot be that of a folder, or fsspec knows no such addresses.
        """
        check_address(url)
        self._address = url, options
        self._name = Results("", name).name
        self._folder = f"{FOLDER}/{name}"
        self._listing: StoreListing | None = None
        self._fails = False
        self._written, self._damaged = set[str](), dict[str, float]()
        self.own: Path = Path()
        self.given: set[str] = set()
        self.there: int = 0

    def __str__(self) -> str:
        return shown(self._address[0])

    @contextmanager
    def opened(self) -> Generator[None]:
        """Within a `with` block, the store can be asked, and there is a place for its files.

        Raises:
            StoreError: The store cannot be read.
        """
        with undrawn():
            self._listing = again(Store(*self._address), StoreListing)
        sign = f"{self._address[0]} {self._name}".encode()
        prefix = f"camshaft-{sha256(sign).hexdigest()[:16]}-"
        for each in Path(gettempdir()).glob(f"{prefix}*"):
            with suppress(OSError), locked(each):  # else another script is at work there
                remove_path(each)
        with TemporaryDirectory(prefix=prefix) as folder, locked(Path(folder)):
            self.own = Path(folder) / "reading"
            yield

    def look(self, which: Which) -> tuple[Found | None, bool]:
        """The next checkpoint to evaluate, if there is one; True if the run has completed.

        While the store fails there is none.
        """
        assert self._listing is not None
        listing = self._listing
        try:
            with undrawn():
                again(listing.store, lambda _: listing.look())
                found = self._next(listing, which)
        except StoreError as error:
            if not self._fails:
                logger.warning("follow asks again later: %s", error)
            self._fails = True
            return None, False
        self._fails = False
        return found, f"{self._folder}/{COMPLETED}" in listing.sizes

    def _next(self, listing: StoreListing, which: Which) -> Found | None:
        found = listing.in_order()
        self.there = len(found)
        for name, manifest in found[:-2:-1] if which == "newest" else found:
            result, now = name_of(manifest), time.monotonic()
            if which == "asked" and self._name not in asked_in(manifest):
                continue
            is_there = f"{self._folder}/{result}" in listing.sizes
            if is_there or result in self.given or now < self._damaged.get(result, 0):
                continue
            if result in self._written and again(listing.store, self._has(result)):
                continue  # a listing may be out of date; else somebody has emptied the store
            make_directory(self.own)
            try:
                return fetch_checkpoint(listing, name, Directory(self.own)), manifest, result
            except BrokenCheckpoint as error:
                if result not in self._damaged:
                    where = listing.store.url, name, error.reason
                    logger.warning("skipped, until its copy is mended: %s/%s: %s", *where)
                self._damaged[result] = now + AGAIN
        return None

    def _has(self, result: str) -> Callable[[Store], bool]:
        return lambda store: store.has(f"{self._folder}/{result}")

    def write(self, name: str, said: Mapping[str, Any]) -> bool:
        """Write a result of this name; False if there is one.

        Raises:
            StoreError: The store cannot be written to; another attempt may succeed.
        """
        assert self._listing is not None
        place, content = f"{self._folder}/{name}", text_of(said).encode()
        with undrawn():
            if again(self._listing.store, self._has(name)):
                return False
            again(self._listing.store, lambda store: store.put_small(place, content))
        self._written.add(name)
        return True
