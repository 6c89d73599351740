"""Camshaft: an event-driven, composable training engine for PyTorch."""

from typing import Any

from .engine.late import late

_get, __dir__, __all__ = late(__name__, public=True)


def __getattr__(name: str) -> Any:
    """Import a name when it is first used; look up the version of the installed package."""
    if name == "__version__":
        from importlib.metadata import version

        return version("camshaft")
    return _get(name)
