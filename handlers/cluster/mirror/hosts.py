"""Copies from hosts that share no directory: each copies its files, the first one the manifest.

All hosts are ordered to copy the same checkpoints. The first host leads: it puts the draft of the
manifest, names the checkpoint in `COPYING`, copies its own files, and waits for the others. Each of
them copies its files and then answers, in an object of its own. Only when all files are there, the
leader puts the manifest. So the rule of `copies.py` holds: files are never without a draft.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ...checkpoint import MANIFEST, Checksums, Manifest, Saved
from ...files import remove_path
from .copies import store_place_of
from .store import DamagedError, Store
from .uploader import GoneError, Uploader

logger: logging.Logger = logging.getLogger("camshaft")

COPYING = "COPYING"
"""Holds the place of the checkpoint under way, and a number of this attempt."""
ANSWERS = "HOSTS"
"""The folder in which each other host says which attempt it has done its part of, and how."""
OVER = "over"
"""Follows in `COPYING` when the leader has given the checkpoint up."""
WHOLE, GONE = "whole", "gone"
"""The answers: all files are there, or this host does not have them any more."""
PAUSE = 1.0
"""Seconds between two looks for others."""
OF_ANY_RANK = re.compile(r"rank-(\d{5,})\.", re.ASCII)


@dataclass(frozen=True)
class Host:
    """One of the hosts of a run."""

    firsts: list[int]
    """The first rank of each host."""
    here: list[int]
    """The ranks of this one."""
    ranks: int
    """How many ranks there are."""
    writer: str
    """The name under which the hosts copy: see `WRITER`."""

    @property
    def leads(self) -> bool:
        """True for the host of rank 0."""
        return 0 in self.here

    def copies(self, name: str) -> bool:
        """True if this host copies a file: that of one of its ranks, or on the first any other.

        >>> host = Host([0, 2], [2, 3], 4, "writer")
        >>> [host.copies(name) for name in ("rank-00003.json", "rank-00006.json", "state.json")]
        [True, True, False]
        """
        of_rank = OF_ANY_RANK.match(name)
        return (int(of_rank[1]) % self.ranks if of_rank else 0) in self.here


class HostUploader(Uploader):
    """Copies this host's files of the checkpoints that it is ordered to copy."""

    is_named = False

    def __init__(self, store: Store, directory: Path, logs: list[str], host: Host) -> None:
        super().__init__(store, directory, logs)
        self._name = host.writer
        self._host = host
        self._orders = dict[str, Saved]()
        """By place: checkpoints to copy, in the order of the saves; the files are links."""
        self._ordered = 0
        self._over = set[str]()
        """The places of the orders that were forgotten last."""

    @classmethod
    def of(cls, store: Store, directory: Path, logs: list[str], host: Host) -> HostUploader:
        """What copies on the first host, or on another one."""
        return (Leader if host.leads else Follower)(store, directory, logs, host)

    def order(self, folder: str, manifest: str) -> None:
        """Copy the files in a folder, which is removed afterwards; this host may lack them."""
        saved = Saved(Path(folder), Manifest.of_json(manifest))
        self._orders[store_place_of(saved.manifest)] = saved
        self._ordered += 1

    @property
    def finished(self) -> int:
        """How many orders this process has had, if none is left; else -1."""
        count = self._ordered  # first, since another thread adds orders
        return -1 if self._orders else count

    def is_new(self) -> bool:
        """True if there are orders."""
        return bool(self._orders)

    def _missing(self) -> list[Saved]:
        known = {*(self._copies or ()), *self._passed_over}
        return [saved for place, saved in list(self._orders.items()) if place not in known]

    def _forget(self, place: str) -> None:
        """Remove the files of an order that is carried out, and of those before it."""
        self._over = set()
        for each in list(self._orders):
            remove_path(self._orders.pop(each).path)
            self._over.add(each)
            if each == place:
                return

    @contextmanager
    def _kept(self, saved: Saved) -> Generator[Path, None, None]:
        yield saved.path

    def _own(self, files: Mapping[str, Checksums]) -> Mapping[str, Checksums]:
        return {name: sums for name, sums in files.items() if self._host.copies(name)}


class Leader(HostUploader):
    """Copies on the first host, and decides which checkpoint all hosts copy."""

    def __init__(self, store: Store, directory: Path, logs: list[str], host: Host) -> None:
        super().__init__(store, directory, logs, host)
        self._new_attempt()
        self._failure = ""
        """Why the last order was not carried out."""

    def _new_attempt(self) -> None:
        self._attempt = f"{self._host.writer}-{uuid4().hex[:8]}"

    def step(self) -> bool:
        """Copy the newest checkpoint that is missing, together with the other hosts."""
        more = super().step()
        for place in list(self._orders):
            if place in self._passed_over:
                self.store.note(COPYING, f"{place} {self._attempt} {OVER}")
                self._forget(place)
            elif place in (self._copies or ()):
                self._failure = ""
                self._forget(place)
        return more

    def behind(self) -> str:
        """A report on files that the store lacks; empty if it has all."""
        return super().behind() or self._failure

    def _put_files(self, place: str, files: Mapping[str, Checksums], folder: Path) -> None:
        """Copy this host's files, and wait until all other hosts have answered.

        Raises:
            GoneError: A host lacks its part.
            OSError: The files of another host are not there.
        """
        text, failure = f"{place} {self._attempt}", None
        self.store.note(COPYING, text)
        try:
            super()._put_files(place, self._own(files), folder)
        except (GoneError, DamagedError) as error:
            failure = error
        answers = self._answers(text)
        lacking = [first for first, how in answers.items() if how != WHOLE]
        if failure or lacking:
            who = f"the host of rank {lacking[0] if lacking else self._host.firsts[0]}"
            self._failure = f"{place} is not copied to {self.store.url}: {who} lacks its part"
            logger.warning("%s", self._failure)
            raise failure or GoneError
        there = self.store.sizes(place)
        if gone := [n for n, sums in files.items() if there.get(f"{place}/{n}") != sums.size]:
            self._new_attempt()
            raise OSError(f"{gone[0]} is not there, though its host has copied it")

    def _answers(self, text: str) -> dict[int, str]:
        """How each other host has done its part of an attempt, by its first rank."""
        found = dict[int, str]()
        while len(found) < len(self._host.firsts) - 1:
            for first in self._host.firsts[1:]:
                if first not in found:
                    attempt, _, how = (self.store.noted(_answer_of(first)) or "").rpartition(" ")
                    if attempt == text:
                        found[first] = how
            self._check_alone()
            if len(found) < len(self._host.firsts) - 1:
                time.sleep(PAUSE)
        return found


class Follower(HostUploader):
    """Copies on another host, when the leader has begun with a checkpoint."""

    def __init__(self, store: Store, directory: Path, logs: list[str], host: Host) -> None:
        super().__init__(store, directory, logs, host)
        self._answer = _answer_of(host.here[0])
        self._under_way = ""

    def begin(self) -> None:
        """Nothing to find out: the leader does."""

    def is_new(self) -> bool:
        """True: the leader may ask again for what this host has forgotten."""
        return True

    def step(self) -> bool:
        """Copy this host's files of the checkpoint under way; False if there is no order left."""
        words = (self.store.noted(COPYING) or "").split()
        # What an earlier start has left there is not meant for this one.
        if len(words) > 1 and words[1].startswith(f"{self._host.writer}-"):
            self._follow(words[0], " ".join(words[:2]), is_over=words[2:] == [OVER])
        for each in reversed(list(self._orders)):
            if self.store.has(f"{each}/{MANIFEST}"):
                self._forget(each)
                break
        if self._orders:
            time.sleep(PAUSE)
        return bool(self._orders)

    def _follow(self, place: str, text: str, *, is_over: bool) -> None:
        if is_over:
            if place in self._orders:
                self._forget(place)
        elif not (self.store.noted(self._answer) or "").startswith(f"{text} "):
            if place in self._orders:
                self._copy(text, place, self._orders[place])
            elif place in self._over and not self.store.has(f"{place}/{MANIFEST}"):
                self.store.note(self._answer, f"{text} {GONE}")

    def behind(self) -> str:
        """A report on files that the store lacks; empty if it has all of this host."""
        missing = self._missing()
        if not missing:
            return ""
        return f"the checkpoint of iteration {missing[-1].manifest.iteration} is not whole there"

    def _copy(self, text: str, place: str, saved: Saved) -> None:
        """Copy this host's files, and answer, unless the leader has given them up meanwhile."""
        if text != self._under_way:
            self._under_way, self._verified = text, set()
        self._check_alone()
        own, how = self._own(saved.manifest.files), WHOLE
        try:
            self._put_files(place, own, saved.path)
        except (GoneError, DamagedError) as error:
            how = GONE
            if isinstance(error, DamagedError):
                logger.warning("%s is not copied to %s: %s", place, self.store.url, error)
        self._check_alone()
        if self.store.noted(COPYING) == text:
            self.store.note(self._answer, f"{text} {how}")
            return
        for name in own:  # another leader has begun anew, and removes halves
            self._check_alone()
            if not self.store.has(f"{place}/{MANIFEST}"):
                self.store.remove(f"{place}/{name}")


def _answer_of(first: int) -> str:
    return f"{ANSWERS}/rank-{first:05d}"
