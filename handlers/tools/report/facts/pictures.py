"""The images of a run, and which images, texts, curves and matrices a page shows."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

from ....files import budget, regular
from .curves import spread
from .exhibits import Exhibit

HEAD = 33
"""Bytes of a PNG file before its second chunk."""
CAPTION = b"Description\0\0\0\0\0"
LONGEST_CAPTION = 2000
SHOWN = 12
"""Images of one name, spread over the run; the newest is always one of them."""


@dataclass(frozen=True)
class Picture:
    """A PNG file."""

    path: Path
    iteration: int
    size: int
    """In bytes."""
    kind: ClassVar[str] = "image"

    @property
    def width(self) -> int:
        """In pixels; 0 if the file is no PNG file."""
        with suppress(OSError, struct.error), regular(self.path) as file:
            head = file.read(24)
            if head.startswith(b"\x89PNG\r\n\x1a\n"):
                return int(struct.unpack(">I", head[16:20])[0])
        return 0

    @property
    def caption(self) -> str:
        """What `ImageFiles` wrote of it into the file; empty if there is nothing."""
        with suppress(OSError, struct.error, ValueError), regular(self.path) as file:
            file.seek(HEAD)
            size, kind = struct.unpack(">I4s", file.read(8))
            text = file.read(min(size, LONGEST_CAPTION))
            if kind == b"iTXt" and text.startswith(CAPTION):
                return text.removeprefix(CAPTION).decode(errors="ignore")
        return ""

    @property
    def content(self) -> bytes:
        """The file; empty if it cannot be read."""
        with suppress(OSError), regular(self.path) as file:
            return file.read(budget.LARGEST_IMAGES)
        return b""


Shot = Picture | Exhibit
"""What a page may show of one iteration."""


class Images(dict[str, list[Picture]]):
    """The images of a run by name, in the order of iterations."""

    problem = ""
    """A note if not all folders were looked through."""


def images_in(directory: Path) -> Images:
    """All files `<name>/<iteration>.png` in a run's directory.

    A folder `images` around them is no part of their names.
    """
    found, left = Images(), budget.MOST_IMAGES
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(each for each in folders if not each.startswith("iteration-"))
        names = list(map(unquote, Path(folder).relative_to(directory).parts))
        name = "/".join(names[1:] if names[:1] == ["images"] else names)
        pictures = list(_pictures(folder, files)) if name else []
        left -= 1 + len(pictures)
        if left < 0 or len(name) > budget.LONGEST_NAME:
            most = f"at most {budget.MOST_IMAGES} images and folders are looked through"
            found.problem = f"there are more images than shown: {most}"
            if left < 0:
                return found
        elif pictures:
            found.setdefault(name, []).extend(pictures)
    return found


def _pictures(folder: str, files: Sequence[str]) -> Iterator[Picture]:
    """The images among the files of a folder, by iteration; of very many, the newest."""
    stems = sorted(int(each[:-4]) for each in files if _is_numbered(each))
    for stem in stems[-budget.MOST_IMAGES - 1 :]:
        path = Path(folder, f"{stem}.png")
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):  # a link may point at what nobody meant to show
                yield Picture(path, stem, status.st_size)


def to_show(
    shots: Mapping[tuple[str, int], Sequence[Shot]], most: int = budget.LARGEST_IMAGES
) -> set[Shot]:
    """What to show of many: of each name some iterations, the newest of all names before older.

    Runs that have a name in common show it at the same iterations, if they have those.
    """
    shown: dict[str, set[int]] = {}
    for (name, _), each in shots.items():
        shown.setdefault(name, set()).update(shot.iteration for shot in each)
    for name, iterations in shown.items():
        shown[name] = {*spread(sorted(iterations), SHOWN)}
    newest_first = [
        [shot for shot in of_name if shot.iteration in shown[name] or shot is of_name[-1]][::-1]
        for (name, _), of_name in shots.items()
    ]
    chosen: set[Shot] = set()
    for place in range(SHOWN + 1):
        for shot in (each[place] for each in newest_first if place < len(each)):
            if shot.size <= most and len(chosen) < budget.MOST_SHOWN:
                chosen.add(shot)
                most -= shot.size
    return chosen


def _is_numbered(name: str) -> bool:
    """True for a name such as `150.png`."""
    return name.endswith(".png") and name[:-4].isascii() and name[:-4].isdecimal()
