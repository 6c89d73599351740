"""The versions of installed packages."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, metadata


def version_of(name: str) -> str | None:
    """The version of a package, `"unknown"` if its files are damaged; None if it is not installed.

    Torch's has its build, such as `2.13.0+cu130`, once it is imported: other builds round
    in other ways.

    >>> version_of("no-such-package") is None
    True
    """
    if name == "torch" and (torch := sys.modules.get(name)) is not None:
        return str(torch.__version__)
    try:
        found = metadata(name).get_all("Version")
    except (PackageNotFoundError, FileNotFoundError):  # of importlib_metadata, if it is damaged
        return None
    return found[0] if found else "unknown"
