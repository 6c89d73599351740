"""What a store holds of a run: whole, broken and unfinished checkpoints, and logs.

Hosts that share a directory copy a checkpoint to one folder. Hosts that share none each copy their
own files to a folder below a prefix of their own, such as `host-1/`, and whoever reads decides from
all of these what is whole.

A copy is made in this order: `manifest.draft`, the files, the manifest; then the draft is removed.
It is dropped in this order: the draft is put again, the manifest is removed, then the files, then
the draft. The draft and the manifest each appear at once. A kill therefore never leaves files with
neither of them, or a manifest that cannot be read: these are damage.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping

from ...checkpoint import Manifest
from ...files import NotRegularError, budget
from .store import Store

TREE, TENSORS = "state.json", ".safetensors"
"""The name, and the ending, of files that every checkpoint has."""
DRAFT = "manifest.draft"
"""A manifest whose files are not all there, because they are being copied or removed."""
RUN = "RUN"
"""Holds the name of the run, in the store and in its directory."""
NAME = re.compile(r"iteration-\d{10,}(\.\d+)?", re.ASCII)
"""The names of checkpoints, in the store as on the disk."""
FILE = re.compile(rf"(?P<prefix>(host-\d+/)?)(?P<name>{NAME.pattern})/(?P<file>[^/]+)", re.ASCII)
"""The name of a file of a checkpoint."""


def store_name_of(manifest: Manifest, parts: Mapping[str, Manifest] | None = None) -> str:
    """What a checkpoint is called in the store: a name that no other checkpoint ever gets.

    On the disk a later save of the same iteration may get the name of an earlier one; in a store,
    where files are replaced one by one, that would mix the two.

    Among `parts`, by their folders, it may have its name already: that of a copy of the same files,
    which lacks metrics that were noted since.
    """
    for folder, copy in (parts or {}).items():
        if copy.number == manifest.number and copy.files == manifest.files:
            return folder.rpartition("/")[2]
    digest = hashlib.sha256(manifest.to_json().encode()).hexdigest()
    return f"iteration-{manifest.iteration:010d}.{int(digest[:8], 16)}"


class StoreListing(dict[str, Manifest]):
    """The checkpoints that are whole in a store: their manifests, by their names.

    If only one process writes to the store, one listing, at the start, is enough.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.sizes: dict[str, int] = {}
        self.parts: dict[str, Manifest] = {}
        """By folder: whole checkpoints, and parts of hosts."""
        self.objects: dict[str, dict[str, str]] = {}
        """By name, for each good file of a checkpoint: the object that holds it."""
        self.manifests: dict[str, Manifest] = {}
        """By name: those that can be read, also of checkpoints that are not whole."""
        self.broken: dict[str, str] = {}
        """By name: the error of a damaged checkpoint."""
        self.unfinished: list[str] = []
        """The names of unfinished copies, which a killed process was writing or removing."""
        self.look()

    def look(self) -> None:
        """List what is there now."""
        known, self.sizes = self.manifests, self.store.sizes()
        for each in (self, self.parts, self.broken):
            each.clear()
        self.objects, self.manifests, self.unfinished = {}, {}, []
        folders = dict[str, dict[str, set[str]]]()
        for prefix, name, file in self._files():
            folders.setdefault(name, {}).setdefault(prefix, set()).add(file)
        for name, files in folders.items():
            self._meet(name, files, known.get(name))
        self._find_unfinished()

    @property
    def is_used(self) -> bool:
        """True if the store holds, or has held, a checkpoint."""
        return bool(self or self.broken)

    def _meet(self, name: str, files: dict[str, set[str]], known: Manifest | None) -> None:
        """Read the manifest of a checkpoint, and note where its files are."""
        with_manifest = [prefix for prefix in files if Manifest.FILE in files[prefix]]
        for prefix in with_manifest:
            try:
                manifest = known or self._manifest(f"{prefix}{name}/{Manifest.FILE}")
            except (ValueError, NotRegularError) as error:
                self.broken[name] = f"{Manifest.FILE} cannot be used: {error}"
                continue
            if manifest is not None:  # else it was removed since it was listed
                self._note(name, manifest, files, prefix)
                return
        if with_manifest:
            return
        found = set().union(*files.values())
        if DRAFT in found:
            self.unfinished.append(name)
        elif any(file == TREE or file.endswith(TENSORS) for file in found):
            self.broken[name] = f"{Manifest.FILE} is missing"

    def _note(self, name: str, manifest: Manifest, files: dict[str, set[str]], at: str) -> None:
        self.manifests[name], objects = manifest, {Manifest.FILE: f"{at}{name}/{Manifest.FILE}"}
        self.broken.pop(name, None)
        for file, sums in manifest.files.items():
            for prefix in files:
                if self.sizes.get(path := f"{prefix}{name}/{file}") == sums.size:
                    objects.setdefault(file, path)
        self.objects[name] = objects
        if manifest.files.keys() <= objects.keys():
            self[name] = manifest
        for prefix, there in files.items():
            if Manifest.FILE in there and (prefix or name in self):
                self.parts[f"{prefix}{name}"] = manifest

    def _find_unfinished(self) -> None:
        """Of checkpoints that are not whole, hosts may not have copied all of the newest yet."""
        newest = max((each.number for each in self.values()), default=-1)
        halves = sorted((m.number, n) for n, m in self.manifests.items() if n not in self)
        of_hosts = {folder.rpartition("/")[2] for folder in self.parts if "/" in folder}
        for number, name in halves:
            if (number, name) == halves[-1] and number > newest and name in of_hosts:
                self.unfinished.append(name)
            else:
                self.broken[name] = "a file is missing, or has another size"

    def in_order(self) -> list[tuple[str, Manifest]]:
        """The names and manifests of whole checkpoints in the order of writing."""
        return sorted(self.items(), key=lambda item: item[1].number)

    def add(self, folder: str, manifest: Manifest) -> None:
        """Note what has just been copied to a folder."""
        self.parts[folder] = manifest
        if "/" not in folder:
            self[folder] = manifest

    def drop(self, folder: str, manifest: Manifest) -> None:
        """Remove a checkpoint; from the first moment it is unfinished, so no reader takes it."""
        name = f"{folder}/{Manifest.FILE}"
        self.store.put_small(f"{folder}/{DRAFT}", manifest.to_json().encode())
        self.store.remove(name)
        self.parts.pop(folder, None)
        self.pop(folder.rpartition("/")[2], None)
        for file in manifest.files:
            self.store.remove(f"{folder}/{file}")
        self.store.remove(name)  # a write by a killed process may arrive late
        self.store.remove(f"{folder}/{DRAFT}")
        self.store.remove_folder(folder, (DRAFT, Manifest.FILE))

    def drop_halves(self, is_own: Callable[[str], bool]) -> None:
        """Remove what a killed process had not finished copying or removing, in own folders.

        A draft lists the files that are Camshaft's; other files stay.
        """
        for prefix, name, file in self._files():
            folder = f"{prefix}{name}"
            if file != DRAFT or not is_own(folder):
                continue
            if folder in self.parts:
                self.store.remove(f"{folder}/{DRAFT}")
            else:
                try:
                    if draft := self._manifest(f"{folder}/{DRAFT}"):
                        self.drop(folder, draft)
                except ValueError:  # it still marks a copy, unless nothing came after it
                    if sum(each.startswith(f"{folder}/") for each in self.sizes) == 1:
                        self.store.remove(f"{folder}/{DRAFT}")

    def _files(self) -> Iterator[tuple[str, str, str]]:
        """The prefix, the name of the checkpoint and that of the file, of all files of these."""
        for found in filter(None, map(FILE.fullmatch, sorted(self.sizes))):
            yield found["prefix"], found["name"], found["file"]

    def _manifest(self, name: str) -> Manifest | None:
        """The manifest in a manifest file or in a draft; None if there is no such object.

        Raises:
            ValueError: The manifest or the draft is damaged.
        """
        content = self.store.read_small(name, budget.LARGEST_MANIFEST)
        return None if content is None else Manifest.of_json(content)
