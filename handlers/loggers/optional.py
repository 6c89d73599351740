"""Libraries that only some loggers need."""

from __future__ import annotations

from importlib.util import find_spec


def need(library: str, logger: str, extra: str) -> None:
    """Raise if a library is not installed; nothing is imported.

    Raises:
        ModuleNotFoundError: It is not.

    >>> need("torch", "MyLogger", "mine")
    """
    if find_spec(library) is None:
        raise ModuleNotFoundError(f'{logger} needs {library}: pip install "camshaft[{extra}]"')
