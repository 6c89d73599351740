"""From the store to the disk: the newest good checkpoint, the logs, and whose run it is."""

from __future__ import annotations

import errno
import logging
import random
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from ...checkpoint import BrokenCheckpoint, Checkpoints, Directory, Manifest
from ...files import (
    NotRegularError,
    budget,
    locked,
    make_directory,
    make_directory_inside,
    move_aside,
    printable,
    put_in_place,
    refuse_odd,
    regular,
    synchronise,
)
from ..results import results_of
from .listing import RUN, StoreListing, store_name_of
from .logs import LOGS, is_log
from .store import CHUNK, Store

logger: logging.Logger = logging.getLogger("camshaft")

WAITS = (1.0, 2.0, 4.0)
"""Seconds before each further attempt to read from the store."""
ENOUGH = 30.0
"""Seconds after which no further attempt is made: the library has retried by itself."""
FINAL = (FileNotFoundError, NotADirectoryError, PermissionError, NotRegularError)
"""Errors that another attempt would not mend."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of the disk, not of the store."""
SHOWN = 20
"""The most broken copies that a message names."""
COPIES = "COPIES"
"""In a run's directory, the names of the copies in the store that it has made, or found there."""

Result = TypeVar("Result")


class StoreError(OSError):
    """A store cannot be read."""


def fetch(
    url: str,
    directory: str | Path,
    *,
    options: Mapping[str, Any] | None = None,
    logs: Iterable[str] = LOGS,
) -> Path | None:
    """Fetch the newest good checkpoint and the logs of a mirrored run, if they are newer.

    `Mirror` does so by itself when a run resumes. This function is for a look at a run that goes on
    elsewhere, and for large checkpoints on several ranks, which would wait for the first one: call
    it before they start.

    Args:
        url: The address that was given to `Mirror`.
        directory: The run's directory; made if there is none.
        options: Storage options, as for `Mirror`.
        logs: Which logs to fetch, as for `Mirror`.

    Returns:
        The checkpoint that was fetched; None if the directory has what the store has, and if the
        store holds no checkpoint: `checkpoints(directory)` tells which of the two.

    Raises:
        BlockingIOError: A run writes to the directory.
        FileExistsError: The directory holds another run.
        StoreError: The store cannot be read.
        ValueError: The store holds checkpoints, and all are broken.
    """
    with undrawn():
        store = Store(str(url), options or {})
        listing = again(store, StoreListing)
        if not listing.is_used:
            _tell_of_halves(store, listing.unfinished)
            return None
        return take_over(store, Path(directory).absolute(), list(logs), listing)


@contextmanager
def undrawn() -> Generator[None]:
    """Within a `with` block, the libraries of stores may draw from Python's generator."""
    drawn = random.getstate()
    try:
        yield
    finally:
        random.setstate(drawn)


def take_over(
    store: Store, directory: Path, logs: list[str], listing: StoreListing, *, is_new: bool = False
) -> Path | None:
    """Give a directory the store's newest good checkpoint, if that is newer."""
    make_directory(directory)
    with locked(directory):
        join(store, directory, listing, is_new=is_new)
        found = _fetch_newest(Directory(directory), logs, listing)
        note_copies(directory, {*listing})
        return found


def join(
    store: Store,
    directory: Path,
    listing: StoreListing,
    *,
    is_new: bool = False,
    needs_run_file: bool = True,
) -> str:
    """Check that the directory and the store hold the same run; note and return the run's name.

    If the store has no checkpoints, that is the directory's run, or a new one. A directory whose
    run is not noted holds another one, unless it needs no such file: of hosts that share none, only
    the first one notes it, and which one that is may change.

    Raises:
        FileExistsError: The directory and the store hold different runs.
    """
    here = _noted(directory / RUN) or None
    if listing.is_used:
        run = again(store, lambda store: store.noted(RUN)) or uuid4().hex
        if here != run and (here or needs_run_file) and Checkpoints(directory):
            raise FileExistsError(
                f"{store.url} holds the checkpoints of another run than {directory}; give this run "
                "an address of its own"
            )
    else:
        run = uuid4().hex if here is None or is_new else here
    if here != run:
        put_in_place(directory / RUN, run.encode())
    return run


def copies_of_others(listing: StoreListing, directory: Path) -> set[str]:
    """The names of copies that another machine made since this directory last saw the store.

    Numbers of saves do not tell: each machine counts on from the checkpoint that it has fetched.
    """
    if not (directory / COPIES).exists():  # none was seen from here, or by an earlier Camshaft
        return set()
    here = {store_name_of(each.manifest, listing) for each in Checkpoints(directory)}
    return listing.keys() - here - {*_noted(directory / COPIES).split()}


def note_copies(directory: Path, names: set[str]) -> None:
    """Note in the directory which copies of the store it knows."""
    if (text := " ".join(sorted(names))) != _noted(directory / COPIES):
        put_in_place(directory / COPIES, text.encode())


def again(store: Store, read: Callable[[Store], Result]) -> Result:
    """Read from a store, with retries, since it may fail for some seconds.

    Raises:
        StoreError: The store still fails after all attempts.
        ValueError: The content that was read is invalid.
    """
    began = time.monotonic()
    for wait in (*WAITS, None):
        try:
            return read(store)
        except ValueError:
            raise
        except Exception as error:
            if getattr(error, "errno", None) in FULL:
                raise
            final = isinstance(error, FINAL)
            if wait is None or final or time.monotonic() - began > ENOUGH:
                raise StoreError(f"{store.url} cannot be read: {store.said(error)}") from None
            time.sleep(wait)
    raise AssertionError


def _fetch_newest(home: Directory, logs: list[str], listing: StoreListing) -> Path | None:
    whole = (each for each in Checkpoints(home.path) if each.problem(thoroughly=False) is None)
    here = [each.manifest for each in whole]
    newest = max((each.number for each in here), default=-1)
    broken, found = dict(listing.broken), None
    reached = max((each.iteration for each in here), default=-1)
    others = copies_of_others(listing, home.path)
    for name, manifest in reversed(listing.in_order()):
        is_behind = manifest.number <= newest
        if is_behind and name not in others:
            break
        try:
            _receive_awaited(listing, manifest.number, home)
            found = fetch_checkpoint(listing, name, home, logs, is_instead=is_behind)
            reached = manifest.iteration
            break
        except BrokenCheckpoint as error:
            broken[name] = error.reason
    tell_of_broken(listing, broken, reached, is_all=not here and found is None)
    return found


def _receive_awaited(listing: StoreListing, number: int, home: Directory) -> None:
    """Fetch the checkpoints before this one that are to be evaluated: so the store keeps them."""
    here = {store_name_of(each.manifest, listing) for each in Checkpoints(home.path)}
    for name, manifest in listing.in_order():
        is_open = any(each not in listing.sizes for each in results_of(manifest))
        if is_open and manifest.number < number and name not in here:
            with suppress(BrokenCheckpoint):  # then the run says what it lacks
                fetch_checkpoint(listing, name, home)


def tell_of_broken(
    listing: StoreListing, broken: Mapping[str, str], reached: int, *, is_all: bool
) -> None:
    """Warn of broken and unfinished copies that are later than what the run has reached.

    Raises:
        ValueError: They are all that there is.
    """
    newest_first = sorted(broken.items(), reverse=True)[:SHOWN]
    if broken and is_all:
        raise ValueError(
            f"no checkpoint in {listing.store.url} is good, and a run does not silently start "
            "anew; to start it, give it another address:"
            + "".join(f"\n  {place}: {reason}" for place, reason in newest_first)
        )
    for name, reason in newest_first:
        if _iteration(name) >= reached:
            where = listing.store.url, name
            logger.warning("passed over, a broken checkpoint: %s/%s: %s", *where, reason)
    unfinished = [each for each in listing.unfinished if _iteration(each) > reached]
    _tell_of_halves(listing.store, unfinished)


def fetch_logs(listing: StoreListing, home: Directory, logs: list[str]) -> None:
    """Download logs; what rows are here instead is moved aside, and what rows follow them stays.

    The longer log need not be the later one: a resume drops rows.

    Raises:
        OSError: A link, a pipe or a device is in the place of a log, or of its folder; the disk has
            too little space; or the store cannot be read.
    """
    for name in (each for each in listing.sizes if is_log(each, logs)):
        *folders, last = name.split("/")
        place = make_directory_inside(home.path, *folders) / last
        refuse_odd(place)
        with home.scratch() as folder:
            home.need_space(listing.sizes[name])
            draft = folder / last
            _get(listing.store, name, draft)
            if not place.exists() or not _begins(place, draft):
                if place.exists() and not _begins(draft, place):
                    move_aside(place, "Mirror")
                draft.replace(place)
                synchronise(place.parent)


def fetch_file(
    listing: StoreListing, place: str, manifest: Manifest, name: str, path: Path
) -> None:
    """Download a file of a checkpoint, called `place` there, and compare its checksums.

    Raises:
        BrokenCheckpoint: The file is missing or damaged in the store.
        StoreError: The store cannot be read.
    """
    _get(listing.store, listing.objects.get(place, {}).get(name, f"{place}/{name}"), path)
    if not manifest.files[name].fit(path):
        raise BrokenCheckpoint(f"{place}/{name} is damaged: its checksum is another one")


def _iteration(place: str) -> int:
    """The iteration in the name of a copy, such as `iteration-0000000008.3586750797`."""
    return int(place.removeprefix("iteration-").partition(".")[0])


def _tell_of_halves(store: Store, places: list[str]) -> None:
    """Warn of unfinished copies: the run resumes from an earlier checkpoint, or begins anew."""
    for each in places:
        logger.warning(
            "passed over, since the machine that copied it ended before all of it was there: %s/%s",
            *(store.url, each),
        )


def fetch_checkpoint(
    listing: StoreListing,
    place: str,
    home: Directory,
    logs: list[str] | None = None,
    *,
    is_instead: bool = False,
) -> Path:
    """Fetch a checkpoint, and logs by patterns; it appears only when it is whole and verified.

    If it comes instead of what was saved here, that is moved aside, where its number is no smaller.

    Raises:
        BrokenCheckpoint: The store does not give what the manifest says.
        OSError: The disk has no space.
    """
    manifest, sizes = listing[place], listing.sizes
    more = [] if logs is None else [size for name, size in sizes.items() if is_log(name, logs)]
    home.need_space(manifest.size + sum(more))
    with home.scratch() as draft:
        for name in manifest.files:
            fetch_file(listing, place, manifest, name, draft / name)
        if logs is not None:
            fetch_logs(listing, home, logs)
        if is_instead:
            found = Checkpoints(home.path)
            before = [each.path for each in found if each.manifest.number < manifest.number]
            aside = home.set_aside(before)
            logger.warning(
                "another machine has gone on with the run: %s holds its iteration %d, and the run "
                "resumes from that; what was saved here instead, up to iteration %d, is in %s",
                *(listing.store.url, manifest.iteration, found[-1].manifest.iteration, aside),
            )
        saved = home.commit(draft, manifest, place=home.unused(manifest.iteration))
    logger.info("fetched %s from %s/%s", saved.path, listing.store.url, place)
    return saved.path


def _begins(path: Path, start: Path) -> bool:
    """True if a file begins with all of another one."""
    with regular(path) as file, regular(start) as other:
        pieces = iter(partial(other.read, CHUNK), b"")
        return all(file.read(len(piece)) == piece for piece in pieces)


def _get(store: Store, name: str, path: Path) -> None:
    """Fetch an object to a new file, and wait until that is on the disk.

    Raises:
        BrokenCheckpoint: The store has no such object.
    """

    def get(store: Store) -> None:
        try:
            store.get(name, path)
        except FileNotFoundError:
            raise BrokenCheckpoint(f"{name} is missing") from None

    again(store, get)
    synchronise(path)


def _noted(path: Path) -> str:
    try:
        with regular(path) as file:
            return printable(file.read(budget.LARGEST_MANIFEST).decode("ascii", "replace").strip())
    except FileNotFoundError:
        return ""
