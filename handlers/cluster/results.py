"""The results of evaluations, in `evaluations/<name>` of a run's directory: a file a checkpoint.

A file is named by the iteration and by the weights, so it never counts for other weights, such as
those of a run that was started over. Whoever writes it first decides, and nothing changes it: the
evaluator with metrics, or the run that goes on without them. So a run that is resumed from before
decides the same again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import count
from os.path import lexists
from pathlib import Path
from typing import Any, Literal

from ..checkpoint import Manifest, Saved
from ..files import (
    beside,
    budget,
    created,
    make_directory,
    make_directory_inside,
    named_again,
    put_in_place,
    regular,
    remove_path,
    synchronise,
    text_of,
    tree_of,
)

Which = Literal["asked", "every", "newest"]
"""Which checkpoints a script wants that follows a run."""
Found = tuple[Path, Manifest, str]
"""A checkpoint without a result: where its files are, its manifest, and the name of its result."""
FOLDER, EVALUATE = "evaluations", "evaluate "
COMPLETED = "COMPLETED"
"""Is there from the end of a run on, until it is carried on."""
NAME = re.compile(r"[\w+=-][\w.+=-]*", re.ASCII)
"""The names of evaluations, which are those of folders."""
RESULT = re.compile(r"iteration-\d{10,}\.[0-9a-f]{16}\.json", re.ASCII)
PIECES = "pieces.json"
"""Is among the files if ranks hold shards of the modules, in files of their own."""
OTHERS = (("train.", "rank-"), ("train.",))
"""The beginnings of files of tensors that are no module's: without shards, and with them."""
ODD = {"nan", "inf", "-inf"}
"""What stands for numbers that JSON does not have."""


class Results:
    """The results of one evaluation of a run."""

    def __init__(self, directory: str | Path, name: str) -> None:
        """Make nothing yet.

        Raises:
            TypeError: The name is no text.
            ValueError: The name cannot be that of a folder.
        """
        if not isinstance(name, str):
            raise TypeError(f"name={name!r}: needs the name of the evaluation, such as 'val'")
        if not NAME.fullmatch(name):
            raise ValueError(f"name={name!r}: needs letters and digits, such as 'val'")
        self.directory: Path = Path(directory).absolute()
        self.name: str = name
        self.folder: Path = self.directory / FOLDER / name
        self.reason: str = f"{EVALUATE}{name}"
        """What a checkpoint that a run wants evaluated says of why it was saved."""

    def make(self) -> None:
        """Make the folder."""
        make_directory_inside(self.directory, FOLDER, self.folder.name)

    def place(self, saved: Saved) -> Path:
        """The file for the result of a checkpoint.

        Raises:
            FileNotFoundError: The checkpoint was dropped.
            ValueError: Its manifest is damaged.
        """
        with regular(saved.path / Manifest.FILE) as file:
            return self.folder / name_of(Manifest.of_json(file.read(budget.LARGEST_MANIFEST)))

    def read(self, place: Path) -> dict[str, Any] | None:
        """What a file says; None if there is none.

        Raises:
            ValueError: It is damaged, or something else.
        """
        try:
            with regular(place) as file:
                said = tree_of(file.read(budget.LARGEST_TEXT))
            if "metrics" in said:
                said["metrics"] = {name: _number(n) for name, n in said["metrics"].items()}
            elif "skipped" not in said:
                raise ValueError("it has neither metrics nor the word that it was skipped")
        except FileNotFoundError:
            return None
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"{place} cannot be used ({error}): remove it, and the checkpoint is evaluated anew"
            ) from error
        return dict(said)

    def write(self, place: Path, **said: Any) -> bool:
        """Write a file, all at once and durably; False if there is one already, which stays."""
        return self.put(place, text_of(said).encode())

    def put(self, place: Path, content: bytes) -> bool:
        """Write what a file holds, as `write` does."""
        self.make()
        draft = beside(place, "tmp")
        try:
            with created(draft) as file:
                file.write(content)
            synchronise(draft)
            named_again(draft, place)
        except FileExistsError:
            return False
        finally:
            remove_path(draft)
        synchronise(self.folder)
        return True

    @property
    def is_empty(self) -> bool:
        """True if no checkpoint has a result, or the word that it was skipped."""
        return not any(RESULT.fullmatch(each.name) for each in self.folder.iterdir())

    @property
    def is_completed(self) -> bool:
        """True if the run has completed, and awaits nothing more."""
        return (self.folder / COMPLETED).exists()

    def complete(self, iteration: int) -> None:
        """Note that the run has completed."""
        put_in_place(self.folder / COMPLETED, f"{iteration}\n".encode())

    def begin(self, *, is_new: bool) -> None:
        """Note that the run goes on; a new run moves what an earlier one has left to a folder."""
        self.make()
        (self.folder / COMPLETED).unlink(missing_ok=True)
        found = [each for each in self.folder.iterdir() if RESULT.fullmatch(each.name)]
        if is_new and found:
            numbered = (self.folder / f"earlier.{number}" for number in count(1))
            aside = next(each for each in numbered if not lexists(each))
            make_directory(aside)
            for each in found:
                each.rename(aside / each.name)
        synchronise(self.folder)


def results_in(directory: Path) -> Iterator[Results]:
    """The results of each evaluation of a run."""
    for folder in (directory / FOLDER).glob("*"):
        if NAME.fullmatch(folder.name) and folder.is_dir():
            yield Results(directory, folder.name)


def name_of(manifest: Manifest) -> str:
    """The name of the file for the result of a checkpoint: its iteration, and its weights."""
    others = OTHERS[PIECES in manifest.files]
    tensors = {
        name: asdict(sums)
        for name, sums in sorted(manifest.files.items())
        if name.endswith(".safetensors") and not name.startswith(others)
    }
    weights = hashlib.sha256(json.dumps(tensors).encode()).hexdigest()[:16]
    return f"iteration-{manifest.iteration:010d}.{weights}.json"


def asked_in(manifest: Manifest) -> set[str]:
    """The names of the evaluations that the run has asked for when it saved a checkpoint."""
    reasons = manifest.reason.split(", ")
    return {each.removeprefix(EVALUATE) for each in reasons if each.startswith(EVALUATE)}


def results_of(manifest: Manifest) -> list[str]:
    """What the files of results that the run has asked for are called in its directory or store."""
    return [f"{FOLDER}/{name}/{name_of(manifest)}" for name in asked_in(manifest)]


def as_json(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Numbers by name as JSON knows them: exact, and as text where they are not finite."""
    return {name: str(n) if str(n) in ODD else n for name, n in metrics.items()}


def _number(value: Any) -> float:
    if type(value) in (int, float) or (isinstance(value, str) and value in ODD):
        return float(value)
    raise ValueError(f"{str(value)[:50]!r} is no number")
