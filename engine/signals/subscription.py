"""What is connected to a signal by `engine.on`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..events import EventEnum, Stage, Trigger
from ..state import Batch, Output, State

Process = Callable[[State[Batch, Output], Batch], Output]
Receiver = Callable[[State[Any, Any]], object]
Watch = Callable[[EventEnum, Receiver, Receiver], Receiver]
"""Makes of an event, a receiver and its function what is called in the function's place."""


@dataclass(frozen=True, eq=False)
class Subscription:
    """One call of `engine.on`: a function, when it is called and in which stage."""

    function: Receiver
    trigger: Trigger
    stage: Stage = Stage.ACT
    name: str = ""
    """Unique in its engine."""
    local: bool = False
    """True if other ranks do not have it, and so cannot agree on anything with it."""
    handler: str = ""
    """The name of the handler whose method the function is."""

    def __call__(self, state: State[Any, Any]) -> object:
        """Call the function, as a plain receiver of a signal."""
        return self.function(state)
