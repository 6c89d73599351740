"""What a page shows of its runs, read on request, and never more often than is cheap."""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...files import budget, regular
from ..facts import Picture, Run
from ..page import news

IDLE = 9
"""After each look at the files, the server leaves them alone for this many times as long."""


class View:
    """What the runs show now, read on request, and never more often than is cheap."""

    def __init__(self, runs: list[Run]) -> None:
        self.names = [run.name for run in runs]
        self._runs = runs
        self._lock = threading.Lock()
        self._images: dict[str, Path] = {}
        self._news: dict[str, Any] = {}
        self._version = 0
        self._next = 0.0

    def news(self) -> tuple[dict[str, Any], str]:
        """What the runs show, and its version."""
        with self._lock:
            began = time.monotonic()
            if began >= self._next:
                looks = [run.look() for run in self._runs]
                if any(looks) or not self._news:
                    self._news = news(self._runs, self._address, is_live=True)
                    self._version += 1
                ended = time.monotonic()
                self._next = ended + IDLE * (ended - began)
            return self._news, f'"{id(self):x}-{self._version}"'

    def image(self, address: str) -> bytes | None:
        """The image that a page has found at this address; None for any other address."""
        if path := self._images.get(address):
            with suppress(OSError), regular(path) as file:
                return file.read(budget.LARGEST_IMAGES)
        return None

    def _address(self, picture: Picture) -> str:
        """An address of the image as it is now; only images of pages that were served have one."""
        told = f"{picture.path}\0{picture.size}".encode(errors="surrogateescape")
        address = f"image/{hashlib.sha256(told).hexdigest()[:20]}.png"
        self._images[f"/{address}"] = picture.path
        return address
