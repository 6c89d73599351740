"""What a store holds of a run: whole, broken and unfinished checkpoints, and the run's name.

A copy is made in this order: `manifest.draft`, the files, the manifest; then the draft is removed.
It is dropped in this order: the draft is put again, the manifest is removed, then the files, then
the draft. The draft and the manifest each appear at once. A kill therefore never leaves files with
neither of them, or a manifest that cannot be read: these are damage.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass

from ..checkpoint import MANIFEST, NAME, Manifest
from ..files import NotRegularError, budget
from .store import Store

TREE, TENSORS = "state.json", ".safetensors"
"""The name, and the ending, of files that every checkpoint has."""
DRAFT = "manifest.draft"
"""A manifest whose files are not all there, because they are being copied or removed."""
RUN = "RUN"
"""Holds the name of the run, in the store and in its directory."""
WRITER = "WRITER"
"""Holds the name of the process that copies to the store: the last one that has begun."""
SMALL = 1000


@dataclass(frozen=True)
class Copy:
    """A checkpoint in the store."""

    place: str
    """The name of its folder."""
    manifest: Manifest

    @property
    def key(self) -> str:
        """The same for all copies of this checkpoint, and for no other checkpoint."""
        return key_of(self.manifest)


def key_of(manifest: Manifest) -> str:
    """A digest of a manifest, which holds the checksums of all files."""
    return hashlib.sha256(manifest.to_json().encode()).hexdigest()


def store_place_of(manifest: Manifest) -> str:
    """Where a checkpoint goes in the store: a name that no other checkpoint ever gets.

    On the disk a later save of the same iteration may get the name of an earlier one; in a store,
    where files are replaced one by one, that would mix the two.
    """
    return f"iteration-{manifest.iteration:010d}.{int(key_of(manifest)[:8], 16)}"


class Copies(dict[str, Copy]):
    """The whole checkpoints in a store, by their keys.

    One process alone writes there, so after the first listing it knows what is there.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.sizes = store.sizes()
        self.broken: dict[str, str] = {}
        """By place: what is wrong with a damaged checkpoint."""
        self.unfinished: list[str] = []
        """The places of unfinished copies, which a killed process was writing or removing."""
        folders = dict[str, set[str]]()
        for place, _, file in (name.partition("/") for name in sorted(self.sizes)):
            if NAME.fullmatch(place):
                folders.setdefault(place, set()).add(file)
        for place, files in folders.items():
            if MANIFEST in files:
                self._meet(place)
            elif DRAFT in files:
                self.unfinished.append(place)
            elif any(file == TREE or file.endswith(TENSORS) for file in files):
                self.broken[place] = f"{MANIFEST} is missing"

    @property
    def is_used(self) -> bool:
        """True if the store holds, or has held, a checkpoint."""
        return bool(self or self.broken)

    def _meet(self, place: str) -> None:
        """Read the manifest in a place, and note the checkpoint."""
        try:
            manifest = self._manifest(f"{place}/{MANIFEST}")
        except (ValueError, NotRegularError) as error:
            self.broken[place] = f"{MANIFEST} cannot be used: {error}"
            return
        if manifest is None:  # removed since it was listed
            return
        if all(
            self.sizes.get(f"{place}/{each}") == sums.size for each, sums in manifest.files.items()
        ):
            self.add(Copy(place, manifest))
        else:
            self.broken[place] = "a file is missing, or has another size"

    def add(self, copy: Copy) -> None:
        """Note that a checkpoint is there."""
        self[copy.key] = copy

    def in_order(self) -> list[Copy]:
        """The checkpoints in the order of writing."""
        return sorted(self.values(), key=lambda each: each.manifest.number)

    def drop(self, copy: Copy) -> None:
        """Remove a checkpoint; from the first moment it is unfinished, so no reader takes it."""
        name = f"{copy.place}/{MANIFEST}"
        self.store.put_whole(f"{copy.place}/{DRAFT}", copy.manifest.to_json().encode())
        self.store.remove(name)
        self.pop(copy.key, None)
        for file in copy.manifest.files:
            self.store.remove(f"{copy.place}/{file}")
        self.store.remove(name)  # a write by a killed process may arrive late
        self.store.remove(f"{copy.place}/{DRAFT}")
        self.store.remove_folder(copy.place, (DRAFT, MANIFEST))

    def drop_halves(self) -> None:
        """Remove what a killed process had not finished copying or removing.

        A draft lists the files that are Camshaft's; other files stay.
        """
        whole = {copy.place for copy in self.values()}
        for name in self.sizes:
            place, _, file = name.partition("/")
            if file == DRAFT and place in whole:
                self.store.remove(name)
            elif file == DRAFT and NAME.fullmatch(place):
                with suppress(ValueError):  # a damaged draft still marks an unfinished copy
                    if draft := self._manifest(name):
                        self.drop(Copy(place, draft))

    def _manifest(self, name: str) -> Manifest | None:
        """The manifest in a manifest file or in a draft; None if there is no such object.

        Raises:
            ValueError: The manifest or the draft is damaged.
        """
        content = self.store.read_small(name, budget.LARGEST_MANIFEST)
        return None if content is None else Manifest.of_json(content)


def note(store: Store, name: str, content: str) -> None:
    """Write this text to a small object, and read it back.

    Raises:
        OSError: The store gives back another one.
    """
    if noted(store, name) != content:
        store.put_small(name, content.encode())
        if noted(store, name) != content:
            raise OSError(f"the store gives back another {name} than it was given")


def noted(store: Store, name: str) -> str | None:
    """The text of a small object; None if there is none."""
    with suppress(ValueError):
        return (store.read_small(name, SMALL) or b"").decode("ascii").strip() or None
    return None
