"""Which packages are installed, and in which versions."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def version_of(name: str) -> str | None:
    """The version of a package, `"unknown"` if its files are damaged; None if it is not installed.

    Torch's has its build, such as `2.13.0+cu130`, once it is imported: other builds round
    in other ways.

    >>> version_of("no-such-package") is None
    True
    """
    if name == "torch" and (torch := sys.modules.get(name)) is not None:
        return str(torch.__version__)
    from importlib.metadata import PackageNotFoundError, metadata  # slow, and seldom needed

    try:
        found = metadata(name).get_all("Version")
    except (PackageNotFoundError, FileNotFoundError):  # of importlib_metadata, if it is damaged
        return None
    return found[0] if found else "unknown"


def need(library: str, logger: str, extra: str) -> None:
    """Raise if a library is not installed; import nothing.

    Raises:
        ModuleNotFoundError: The library is not installed.

    >>> need("torch", "MyLogger", "mine")
    """
    if find_spec(library) is None:
        raise ModuleNotFoundError(f'{logger} needs {library}: pip install "camshaft[{extra}]"')
