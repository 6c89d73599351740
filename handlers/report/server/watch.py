"""`camshaft watch`: the page of a run while it goes on, for whoever started the command."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Thread

from ..facts import runs_in
from ..page import library
from .answer import Answer
from .connections import Server
from .view import View


def watch(paths: list[Path], port: int) -> int:
    """Serve the page until Ctrl-C; return the exit code.

    Raises:
        ImportError: plotly is not installed.
        OSError: The port is taken.
    """
    library()  # fails now if plotly is not installed
    with make_server(paths, port) as server:
        # Ctrl-C interrupts this thread alone, which does nothing that could be left half done.
        serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
        serving.start()
        try:  # from before anybody can know the address
            print(f"{server.page_address}  (Ctrl-C ends it)", flush=True)
            while serving.is_alive():
                serving.join(1)
        except KeyboardInterrupt:
            print(file=sys.stderr)
        server.shutdown()
    return 0


def make_server(paths: list[Path], port: int = 0) -> Server:
    """A server of the page, at `/`, and its data, at `/data.json`, on this machine's loopback.

    It answers GET and HEAD, of whoever has its token: its `page_address` holds the token, and a
    cookie does after that. Of all files it serves only the images that the page shows, by
    addresses that hold no path. It refuses requests by any other host name, so no page of another
    site can read the data through a name that resolves to this machine.
    """
    return Server(port, Answer, View(runs_in(paths)))
