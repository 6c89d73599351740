"""Lazy imports: a package imports a name when it is first used.

So `import camshaft` does not import torch: plain Python engines and the command line start fast.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from .names import OF_PACKAGE, advice

LINE = re.compile(r"^from (\.\S*) import (\w+) as \2$", re.MULTILINE)
"""A line of a stub that exports a name, in the form that type checkers need."""


class Late(ModuleType):
    """A package whose exports stay what they are where one of its files has the same name."""

    exported: dict[str, str]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, unless this is the import of a file that has the name of an export."""
        if not isinstance(value, ModuleType) or self.exported.get(name, ".") == ".":
            super().__setattr__(name, value)


def late(
    package: str, *, public: bool = False
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package, by its stub `__init__.pyi`.

    The stub is the one list of the package's names: type checkers read it, and so does this
    function (PEP 562 and PEP 561). Each name is imported from where the stub imports it.

    With `public`, a name of another library says what to write.

    >>> get, _, names = late("camshaft")
    >>> "Engine" in names
    True
    >>> get("Engine")
    <class 'camshaft.engine.engine.Engine'>
    """
    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi")
    # Not by ast, whose many objects start Python's garbage collector during the import.
    homes = {name: home for home, name in LINE.findall(stub.read_text(encoding="utf-8"))}

    module: Any = sys.modules[package]
    module.exported, module.__class__ = homes, Late

    def get(name: str) -> Any:
        if name not in homes:
            meant = advice(name, homes, OF_PACKAGE) if public else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{meant}")
        if homes[name] == ".":  # a module of the package
            value = import_module(f".{name}", package)
        else:
            value = getattr(import_module(homes[name], package), name)
        setattr(module, name, value)  # the next access finds it there
        return value

    def names() -> list[str]:
        return list(homes)

    return get, names, names()
