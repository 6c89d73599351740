"""Names that a package imports when they are first asked for.

So `import camshaft` brings no torch along to those who need none: an engine of plain Python, or
the command line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def late(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a package: it imports a name from its home, a module of the package.

    >>> late("camshaft.engine", {"Engine": ".engine"})("Engine")
    <class 'camshaft.engine.engine.Engine'>
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name], package), name)
        setattr(sys.modules[package], name, value)  # the next one who asks finds it there
        return value

    return get
