"""The connection to the store of the process group, whose host may be gone without a word.

torch gives no limit to a single call of the store. If the store's host loses its power or its
network, a call waits for as long as the system sends again, a quarter of an hour or for ever.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from .groups import default_store

SOCKETS = Path("/proc/self/fd")
INTERNET = (socket.AF_INET, socket.AF_INET6)
TRIES = 4


def limit_calls_of_store() -> None:
    """Let a call of the store fail once its host was silent for the timeout of the group.

    A host whose processes hang still answers. Only Linux tells a process its sockets.
    """
    store = default_store()
    while (inner := getattr(store, "underlying_store", None)) is not None:
        store = inner
    port, limit = getattr(store, "port", None), store.timeout.total_seconds()
    for each in SOCKETS.iterdir() if port and SOCKETS.is_dir() else ():
        with suppress(OSError):  # it is closed by now, or not connected
            if os.readlink(each).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(each.name))) as own:
                    if own.family in INTERNET and own.getpeername()[1] == port:
                        _limit(own, limit)


def _limit(own: Any, seconds: float) -> None:
    """Give up what nobody acknowledges; ask a silent host from time to time whether it is there."""
    pause = max(1, int(seconds / TRIES))
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, pause)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, pause)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, TRIES)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
