"""A run that is followed by the copies in its store, on a machine that does not see its directory.

A checkpoint is fetched when it is its turn. A result goes into the store, from where the run's
`Mirror` brings it to the directory: there it is decided whether it counts.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
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
        self._given = url, options
        self._name = Results("", name).name
        self._folder = f"{FOLDER}/{name}"
        self._listing: StoreListing | None = None
        self._fails = False
        self.own: Path = Path()

    def __str__(self) -> str:
        return shown(self._given[0])

    @contextmanager
    def opened(self) -> Generator[None]:
        """Within a `with` block, the store can be asked, and there is a place for its files.

        Raises:
            StoreError: The store cannot be read.
        """
        with undrawn():
            self._listing = again(Store(*self._given), StoreListing)
        prefix = f"camshaft-{sha256(self._given[0].encode()).hexdigest()[:16]}-"
        for each in Path(gettempdir()).glob(f"{prefix}*"):
            with suppress(OSError), locked(each):  # else another script is at work there
                remove_path(each)
        with TemporaryDirectory(prefix=prefix) as folder, locked(Path(folder)):
            self.own = Path(folder) / "reading"
            yield

    def look(self, which: Which, seen: set[str]) -> tuple[Found | None, bool]:
        """The next checkpoint to evaluate, if there is one; True if the run has completed.

        While the store fails there is none.
        """
        assert self._listing is not None
        listing = self._listing
        try:
            with undrawn():
                again(listing.store, lambda _: listing.look())
                found = self._next(listing, which, seen)
        except StoreError as error:
            if not self._fails:
                logger.warning("follow asks again later: %s", error)
            self._fails = True
            return None, False
        self._fails = False
        return found, f"{self._folder}/{COMPLETED}" in listing.sizes

    def _next(self, listing: StoreListing, which: Which, seen: set[str]) -> Found | None:
        found = listing.in_order()
        for name, manifest in found[:-2:-1] if which == "newest" else found:
            result = name_of(manifest)
            is_done = result in seen or f"{self._folder}/{result}" in listing.sizes
            if is_done or (which == "asked" and self._name not in asked_in(manifest)):
                continue
            make_directory(self.own)
            try:
                return fetch_checkpoint(listing, name, Directory(self.own)), manifest, result
            except BrokenCheckpoint as error:
                seen.add(result)
                logger.warning("skipped: %s/%s: %s", listing.store.url, name, error.reason)
        return None

    def write(self, name: str, said: Mapping[str, Any]) -> bool:
        """Write a result of this name; False if there is one.

        Raises:
            StoreError: The store cannot be written to; another attempt may succeed.
        """
        assert self._listing is not None
        place = f"{self._folder}/{name}"

        def put(store: Store) -> bool:
            if store.has(place):
                return False
            store.put_small(place, text_of(said).encode())
            return True

        with undrawn():
            return again(self._listing.store, put)
