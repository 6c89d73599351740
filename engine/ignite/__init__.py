"""ignite's engine on Camshaft's loop: change the import of a script, and keep the script.

`Engine` is a subclass of `ignite.engine.Engine`. The other names are those of `ignite.engine`,
and `IgniteMemory` is for who saves its handlers elsewhere.
"""

from ignite.engine import DeterministicEngine, EventEnum, Events, EventsList, State
from ignite.engine import supervised_evaluation_step as supervised_evaluation_step
from ignite.engine import supervised_evaluation_step_amp as supervised_evaluation_step_amp
from ignite.engine import supervised_training_step as supervised_training_step
from ignite.engine import supervised_training_step_amp as supervised_training_step_amp
from ignite.engine.events import CallableEventWithFilter, RemovableEventHandle

from .engine import Engine
from .memory import IgniteMemory
from .supervised import create_supervised_evaluator, create_supervised_trainer

__all__ = [
    "CallableEventWithFilter",
    "DeterministicEngine",
    "Engine",
    "EventEnum",
    "Events",
    "EventsList",
    "IgniteMemory",
    "RemovableEventHandle",
    "State",
    "create_supervised_evaluator",
    "create_supervised_trainer",
    "supervised_evaluation_step",
    "supervised_evaluation_step_amp",
    "supervised_training_step",
    "supervised_training_step_amp",
]
