"""What a store holds of a run: whole checkpoints, halves, the newest one's name, and whose run."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from dataclasses import dataclass

from ..checkpoint import MANIFEST, NAME, Manifest
from ..files import budget
from .store import Store

logger = logging.getLogger("camshaft")

DRAFT = "manifest.draft"
"""A manifest whose files are not all there: they are being copied, or removed."""
LATEST = "LATEST"
"""Names the newest checkpoint: a listing of a moment ago may lack it."""
RUN = "RUN"
"""Holds the name of the run, in the store and in the run's directory."""
SMALL = 1000


@dataclass(frozen=True)
class Copy:
    """A checkpoint in the store."""

    place: str
    """The name of its folder."""
    manifest: Manifest

    @property
    def key(self) -> str:
        """The same for the checkpoint that it is a copy of, and for no other."""
        return key_of(self.manifest)

    def is_whole(self, store: Store, listed: dict[str, int]) -> bool:
        """True if all its files are there, each with its size."""
        for file, sums in self.manifest.files.items():
            name = f"{self.place}/{file}"
            if listed.get(name) != sums.size:  # a listing may be of a moment ago
                try:
                    if store.size(name) != sums.size:
                        return False
                except FileNotFoundError:
                    return False
        return True


def key_of(manifest: Manifest) -> str:
    """A digest of a manifest, which holds the checksums of all files."""
    return hashlib.sha256(manifest.to_json().encode()).hexdigest()


def place_of(manifest: Manifest) -> str:
    """Where a checkpoint goes in the store: a name that no other checkpoint ever gets.

    On the disk a later save of the same iteration may get the name of an earlier one; in a store,
    where files are replaced one by one, that would mix the two.
    """
    return f"iteration-{manifest.iteration:010d}.{int(key_of(manifest)[:8], 16)}"


def manifest_at(store: Store, name: str) -> tuple[Manifest, bytes] | None:
    """A manifest or a draft, and its bytes; None if there is none, or a damaged one."""
    try:
        content = store.read_small(name, budget.LARGEST_MANIFEST)
        return None if content is None else (Manifest.of_json(content), content)
    except ValueError as error:
        if not name.endswith(DRAFT):
            logger.warning("%s/%s cannot be used: %s", store.url, name, error)
        return None


class Copies(dict[str, Copy]):
    """The checkpoints in a store whose manifests can be read, by their keys.

    This process alone writes there, so after the first listing it knows what is there.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.sizes = store.sizes()
        self.broken: list[Copy] = []
        """Checkpoints of which a file is missing, or has another size."""
        places = {name.split("/")[0] for name in self.sizes if "/" in name}
        latest = store.read_small(LATEST, SMALL) or b""
        places |= {latest.decode("ascii", "replace").strip()}
        for place in sorted(filter(NAME.fullmatch, places)):
            if found := manifest_at(store, f"{place}/{MANIFEST}"):
                copy = Copy(place, found[0])
                if copy.is_whole(store, self.sizes):
                    self.add(copy)
                else:
                    self.broken.append(copy)

    def add(self, copy: Copy) -> None:
        """Note that a checkpoint is there."""
        self[copy.key] = copy

    def in_order(self) -> list[Copy]:
        """The checkpoints in the order of writing."""
        return sorted(self.values(), key=lambda each: each.manifest.number)

    def drop(self, copy: Copy) -> None:
        """Remove a checkpoint: it is a half from the first moment, so none is seen."""
        name = f"{copy.place}/{MANIFEST}"
        self.store.put_small(f"{copy.place}/{DRAFT}", copy.manifest.to_json().encode())
        self.store.remove(name)
        self.pop(copy.key, None)
        for file in copy.manifest.files:
            self.store.remove(f"{copy.place}/{file}")
        self.store.remove(name)  # of a process that was killed, a write may come late
        self.store.remove(f"{copy.place}/{DRAFT}")
        self.store.remove_folder(copy.place)

    def drop_halves(self) -> None:
        """Remove what a process that was killed had not finished copying, or removing.

        A draft says which files are Camshaft's; other files stay.
        """
        whole = {copy.place for copy in self.values()}
        for name in self.sizes:
            place, _, file = name.partition("/")
            if file == DRAFT and NAME.fullmatch(place):
                draft = None if place in whole else manifest_at(self.store, name)
                if draft is None:
                    self.store.remove(name)
                else:
                    self.drop(Copy(place, draft[0]))

    def note_latest(self) -> None:
        """Name the newest checkpoint, for fetching and for people."""
        if self:
            self.store.put_small(LATEST, f"{self.in_order()[-1].place}\n".encode())


def note_run(store: Store, run: str) -> None:
    """Say to which run a store belongs."""
    if run_in(store) != run:
        store.put_small(RUN, run.encode())


def run_in(store: Store) -> str | None:
    """The name of the run to which a store belongs."""
    with suppress(ValueError):
        return (store.read_small(RUN, SMALL) or b"").decode("ascii").strip() or None
    return None
