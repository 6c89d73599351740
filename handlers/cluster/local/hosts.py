"""The hosts of a run: which ranks share a disk, and the copies that they get from one another."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname
from typing import Any

from ....engine import ranks
from ...checkpoint.format import Checksums, Manifest
from ...checkpoint.save import Team
from ...files import beside, created, make_directory, remove_path, synchronise, tree_of
from ..transfer import Key, Parts, Shelf, own_address, received_from, received_into

logger: logging.Logger = logging.getLogger("camshaft")

Files = Mapping[str, Checksums]
SUMS = "checksums"
"""What says which files a rank has written, besides these."""
SERVED = 2
"""How often a rank asks another one for a save: for the checksums, and for the files."""
GRACE = 4.0
"""Seconds that a run which ends with an error waits for another host."""


class Hosts(Team):
    """The ranks of all hosts, each of which has a directory of its own."""

    def __init__(self, directory: Path, *, copies: int) -> None:
        """Know no host yet."""
        super().__init__(directory, is_alone=False)
        self._copies = copies
        self.firsts: list[int] = [0]
        """The first rank of each host."""
        self.members: list[int] = [0]
        """The ranks of this host."""
        self._first_here = 0
        self._shelf: Shelf | None = None
        self._places: list[str] = []
        """Where each rank offers its files."""
        self._from: list[int] = []
        """The ranks of the host before, whose files this rank copies."""
        self._offered: Key | None = None
        """This rank's files of the last save, unless it could not write them."""

    @property
    def is_first_here(self) -> bool:
        """True for the first rank of a host."""
        return self.rank == self._first_here

    @property
    def number(self) -> int:
        """The number of this host."""
        return self.firsts.index(self._first_here)

    def open(self) -> None:
        """Find out which ranks see the same directory: these are a host.

        Raises:
            OSError: A rank cannot write to its directory.
        """
        probe = beside(self._directory / "iteration-0", "tmp")
        self._session = str(ranks.from_first(probe.name)).rpartition("-")[2]
        if self.size == 1:
            return
        with self.all(f"write to {self._directory}"):
            make_directory(self._directory)
            with created(probe):
                pass
        try:
            probes = ranks.gathered(probe.name)
            seen = set(os.listdir(self._directory))
            own = next(rank for rank, name in enumerate(probes) if name in seen)
            first_of = ranks.gathered(own)
        finally:
            with suppress(OSError):
                probe.unlink()
        self._first_here = own
        self.firsts = sorted({*first_of})
        self.members = [rank for rank, first in enumerate(first_of) if first == own]
        if self._copies and len(self.firsts) > 1:
            self._open_shelf(first_of)

    def _open_shelf(self, first_of: list[int]) -> None:
        """Offer files to the other hosts; each rank's files are for one rank of the next host."""
        address = _address()
        with self.all(f"offer its files at {address}"):
            if self._shelf is None:
                self._shelf = Shelf(address, self._timeout)
            place = self._shelf.place
        self._places = ranks.gathered(place)
        members = {first: [n for n, f in enumerate(first_of) if f == first] for first in first_of}
        to = dict[int, int]()
        for at, first in enumerate(self.firsts):
            others = members[self.firsts[(at + 1) % len(self.firsts)]]
            to |= {rank: others[n % len(others)] for n, rank in enumerate(members[first])}
        self._from = [rank for rank in to if to[rank] == self.rank]

    @property
    def _timeout(self) -> float:
        return float(ranks.default_store().timeout.total_seconds())

    def close(self) -> None:
        """Offer nothing any more, once the next host has copied the last save."""
        if self._shelf is not None:
            if self._offered:  # after an error, ranks do not wait for one another
                self._shelf.await_served(self._offered, SERVED, GRACE)
            self._shelf.close()
            self._shelf = None

    def report(
        self, temporary: Path, written: Files | None, failure: BaseException | None
    ) -> Files | None:
        """Copy the files of the host before, so that they count; then tell rank 0.

        Returns:
            The files of all ranks on rank 0; none on the first rank of other hosts, which have to
            `hear` of them; None on other ranks.
        """
        if self._shelf is not None:
            self._offered = None if written is None else _key(temporary)
            self._shelf.offer(_key(temporary), partial(_written, temporary, written))
            try:
                for source in self._from:
                    self.receive(temporary, source)
                synchronise(temporary)
            except Exception as error:
                failure = failure or OSError(f"rank {self.rank} has no copy: {error}")
        if failure is not None:
            written = None
        found = super().report(temporary, written, failure)
        return {} if found is None and self.is_first_here else found

    def offer(self, folder: Path, files: Mapping[str, Path]) -> None:
        """Let other hosts copy files to folders of this name."""
        if self._shelf is not None:
            self._shelf.offer(_key(folder), lambda: files)

    def receive(self, folder: Path, source: int, files: Files | None = None) -> None:
        """Copy files from a rank of another host, and compare their checksums on this disk.

        Args:
            folder: Where to; the other rank has a folder of this name.
            source: The rank.
            files: Which files; None for all that it has written, by what it says of them.

        Raises:
            OSError: The other rank has not written them, or is gone, or this disk is full.
            ValueError: The files are damaged.
        """
        place, key = self._places[source], _key(folder)
        if files is None:
            said = tree_of(bytes(received_from(place, key, self._timeout, [SUMS])[SUMS]))
            files = {str(name): Checksums(**each) for name, each in said.items()}
        if odd := [name for name in files if Path(name).name != name]:
            raise ValueError(f"another rank sends files {odd}")
        folder.mkdir(exist_ok=True)
        received_into(folder, place, key, self._timeout, files)
        for name, sums in files.items():
            if not sums.fit(folder / name):
                raise ValueError(f"{name} of rank {source} was damaged on its way to {folder}")

    def all_say(self, temporary: Path, is_so: bool) -> bool:
        """On rank 0: True if the first ranks of all hosts say so; the others call this, too."""
        box = f"{temporary.name}/said"
        if self.rank > 0:
            ranks.post(box, str(int(is_so)))
            return False
        others = len(self.firsts) - 1
        said = ranks.collected(box, others, self._is_over) if others else []
        return is_so and said == ["1"] * others

    def tell(self, temporary: Path, manifest: Manifest | None, *, is_copied: bool) -> None:
        """On rank 0: give the manifest to the first rank of each other host; None if it failed."""
        text = json.dumps([manifest and manifest.to_json(), is_copied])
        with suppress(OSError) if manifest is None else nullcontext():  # the error is raised anyway
            for first in self.firsts[1:]:
                ranks.post(f"{temporary.name}-{first}", text)

    def hear(self, temporary: Path) -> tuple[Manifest, bool]:
        """The manifest that rank 0 has written, and whether all copy the checkpoint to a store.

        Raises:
            OSError: Rank 0 has written none.
        """
        letters = ranks.collected(f"{temporary.name}-{self.rank}", 1, self._is_over)
        if not letters:
            raise OSError(f"rank 0 has not told that all ranks have written {temporary}")
        text, is_copied = json.loads(letters[0])
        if text is None:
            raise OSError(f"rank 0 has not saved {temporary}; its own error says why")
        return Manifest.of_json(text), is_copied

    def remove(self, temporary: Path, condemned: Collection[Path]) -> None:
        """Remove directories of this host."""
        for each in condemned:
            remove_path(each)


def _key(folder: Path) -> Key:
    return "files", folder.name  # the name is random, and the ranks of this run alone know it


def _written(folder: Path, files: Files | None) -> Parts:
    """What this rank has written, for the next host.

    Raises:
        OSError: It could not write its files; the other one sees the connection close.
    """
    if files is None:
        raise OSError(f"{folder} could not be written")
    said: Mapping[str, Any] = {name: asdict(each) for name, each in files.items()}
    return {SUMS: json.dumps(said).encode(), **{name: folder / name for name in files}}


def _address() -> str:
    """Where other hosts reach this one: at first, where it reaches the store of the process group.

    The host of the store may reach that without leaving itself; then it takes the address from
    which it reaches another host.
    """
    store = ranks.default_store()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    own = own_address(getattr(store, "host", gethostname()), 1)
    others = [each for each in ranks.gathered(own) if not ip_address(each).is_loopback]
    return own_address(others[0], 1) if others and ip_address(own).is_loopback else own
