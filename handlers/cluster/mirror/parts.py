"""What each host copies: all, or if the hosts share no directory, its own files to its own prefix.

The ranks that write say which checkpoints are copied, so all hosts copy the same ones: each links
its files into an outbox, and the process that copies removes what it has copied from there.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...checkpoint import Manifest, Saved
from ...files import beside, named_again, remove_path
from .listing import store_name_of

logger: logging.Logger = logging.getLogger("camshaft")

OF_ANY_RANK = re.compile(r"rank-(\d{5,})\.", re.ASCII)


@dataclass(frozen=True)
class Host:
    """One of the hosts of a run that share no directory."""

    number: int
    count: int
    """How many hosts there are."""
    here: list[int]
    """The ranks of this one."""
    ranks: int
    """How many ranks there are."""

    @property
    def prefix(self) -> str:
        """Below which name this host copies."""
        return f"host-{self.number}/"

    def own(self, files: Iterable[str]) -> list[str]:
        """Which files this host copies: those of its ranks, and on the first host all others.

        >>> Host(1, 2, [2, 3], 4).own(["rank-00003.json", "rank-00006.json", "state.json"])
        ['rank-00003.json', 'rank-00006.json']
        """
        ranks = [(name, OF_ANY_RANK.match(name)) for name in files]
        return [name for name, of in ranks if (int(of[1]) % self.ranks if of else 0) in self.here]

    def tends(self, folder: str) -> bool:
        """True if this host drops what no claim keeps in a folder of the store.

        >>> [Host(0, 2, [0], 2).tends(f"{prefix}iteration-0") for prefix in ("", "host-1/")]
        [True, False]
        """
        others = [f"host-{n}/" for n in range(self.count) if n != self.number]
        return folder.startswith(self.prefix) or (
            self.number == 0 and not folder.startswith(tuple(others))
        )


class Outbox:
    """The checkpoints that this host is to copy: links, which no `keep` removes."""

    def __init__(self, directory: Path, host: Host) -> None:
        """Hold none yet; the folder has a name that the next start removes."""
        self.folder: Path = beside(directory / "iteration-0", "tmp")
        self._host = host

    def is_empty(self) -> bool:
        """True if all is copied, so the next checkpoint is to be copied."""
        return not any(self.folder.glob("iteration-*"))

    def put(self, saved: Saved) -> str:
        """Let a checkpoint be copied; why that is not possible, or an empty text."""
        place = self.folder / store_name_of(saved.manifest)
        draft = beside(place, "tmp")
        try:
            if not place.exists():
                draft.mkdir(parents=True)
                for name in (*self._host.own(saved.manifest.files), Manifest.FILE):
                    named_again(saved.path / name, draft / name)
                draft.rename(place)
        except OSError as error:
            remove_path(draft)
            return f"{saved.path} is not copied to the store: {error}"
        return ""
