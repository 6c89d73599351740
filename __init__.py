"""Camshaft: an event-driven, composable training engine for PyTorch."""

from typing import Any

from .engine import ranks
from .engine.engine import Engine, Handler
from .engine.events import EventEnum, Events, Stage, Trigger
from .engine.ranks import on_rank
from .engine.state import State
from .engine.supervised import Output, supervised, unwrap
from .engine.update import Update

__all__ = [
    "Engine",
    "EventEnum",
    "Events",
    "Handler",
    "Output",
    "Stage",
    "State",
    "Trigger",
    "Update",
    "on_rank",
    "ranks",
    "supervised",
    "unwrap",
]


def __getattr__(name: str) -> Any:
    """The version is looked up when it is asked for, which spares the import a search."""
    if name == "__version__":
        from importlib.metadata import version

        return version("camshaft")
    raise AttributeError(f"module 'camshaft' has no attribute {name!r}")
