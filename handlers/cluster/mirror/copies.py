"""What a store holds of a run: whole, broken and unfinished checkpoints, and logs.

A copy is made in this order: `manifest.draft`, the files, the manifest; then the draft is removed.
It is dropped in this order: the draft is put again, the manifest is removed, then the files, then
the draft. The draft and the manifest each appear at once. A kill therefore never leaves files with
neither of them, or a manifest that cannot be read: these are damage.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress

from ...checkpoint import MANIFEST, NAME, Manifest
from ...files import NotRegularError, budget
from .store import Store

TREE, TENSORS = "state.json", ".safetensors"
"""The name, and the ending, of files that every checkpoint has."""
DRAFT = "manifest.draft"
"""A manifest whose files are not all there, because they are being copied or removed."""
RUN = "RUN"
"""Holds the name of the run, in the store and in its directory."""


def store_place_of(manifest: Manifest) -> str:
    """Where a checkpoint goes in the store: a name that no other checkpoint ever gets.

    On the disk a later save of the same iteration may get the name of an earlier one; in a store,
    where files are replaced one by one, that would mix the two.
    """
    digest = hashlib.sha256(manifest.to_json().encode()).hexdigest()
    return f"iteration-{manifest.iteration:010d}.{int(digest[:8], 16)}"


class Copies(dict[str, Manifest]):
    """The whole checkpoints in a store: their manifests, by their places.

    Only one process writes to the store, so one listing, at the start, is enough.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.sizes: dict[str, int] = store.sizes()
        self.broken: dict[str, str] = {}
        """By place: the error of a damaged checkpoint."""
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
            self[place] = manifest
        else:
            self.broken[place] = "a file is missing, or has another size"

    def in_order(self) -> list[tuple[str, Manifest]]:
        """The places and manifests in the order of writing."""
        return sorted(self.items(), key=lambda item: item[1].number)

    def drop(self, place: str, manifest: Manifest) -> None:
        """Remove a checkpoint; from the first moment it is unfinished, so no reader takes it."""
        name = f"{place}/{MANIFEST}"
        self.store.put_small(f"{place}/{DRAFT}", manifest.to_json().encode())
        self.store.remove(name)
        self.pop(place, None)
        for file in manifest.files:
            self.store.remove(f"{place}/{file}")
        self.store.remove(name)  # a write by a killed process may arrive late
        self.store.remove(f"{place}/{DRAFT}")
        self.store.remove_folder(place, (DRAFT, MANIFEST))

    def drop_halves(self) -> None:
        """Remove what a killed process had not finished copying or removing.

        A draft lists the files that are Camshaft's; other files stay.
        """
        for name in self.sizes:
            place, _, file = name.partition("/")
            if file == DRAFT and place in self:
                self.store.remove(name)
            elif file == DRAFT and NAME.fullmatch(place):
                with suppress(ValueError):  # a damaged draft still marks an unfinished copy
                    if draft := self._manifest(name):
                        self.drop(place, draft)

    def _manifest(self, name: str) -> Manifest | None:
        """The manifest in a manifest file or in a draft; None if there is no such object.

        Raises:
            ValueError: The manifest or the draft is damaged.
        """
        content = self.store.read_small(name, budget.LARGEST_MANIFEST)
        return None if content is None else Manifest.of_json(content)
