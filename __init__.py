"""Camshaft: an event-driven, composable training engine for PyTorch."""

from typing import TYPE_CHECKING, Any

from .engine import ranks
from .engine.engine import Engine, Handler
from .engine.events import EventEnum, Events, Stage, Trigger
from .engine.late import late
from .engine.ranks import on_rank
from .engine.state import State

if TYPE_CHECKING:
    from .engine.activations import checkpoint_activations
    from .engine.device import Transfer, to_device
    from .engine.seeds import seed_everything
    from .engine.supervised import Output, supervised
    from .engine.update import Update
    from .engine.wrappers import unwrap

    __version__: str

__all__ = [
    "Engine",
    "EventEnum",
    "Events",
    "Handler",
    "Output",
    "Stage",
    "State",
    "Transfer",
    "Trigger",
    "Update",
    "checkpoint_activations",
    "on_rank",
    "ranks",
    "seed_everything",
    "supervised",
    "to_device",
    "unwrap",
]


if not TYPE_CHECKING:  # a type checker would take any name for one that there is
    _late = late(
        __name__,
        {
            "Output": ".engine.supervised",
            "Transfer": ".engine.device",
            "Update": ".engine.update",
            "checkpoint_activations": ".engine.activations",
            "seed_everything": ".engine.seeds",
            "supervised": ".engine.supervised",
            "to_device": ".engine.device",
            "unwrap": ".engine.wrappers",
        },
    )

    def __getattr__(name: str) -> Any:
        """What not everybody needs is looked up when it is asked for: the version, and torch."""
        if name == "__version__":
            from importlib.metadata import version

            return version("camshaft")
        return _late(name)


def __dir__() -> list[str]:
    return __all__
