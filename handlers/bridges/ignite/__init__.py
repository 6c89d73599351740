"""pytorch-ignite: its scripts on Camshaft's loop, and its handlers on Camshaft's engines.

`Engine` is a subclass of `ignite.engine.Engine` that runs on Camshaft's loop: change the import of
a script, and keep the script. The names that are not ours are those of `ignite.engine`.
`FromIgnite` and `as_ignite` attach handlers of ignite to an engine of Camshaft.
"""

from ignite.engine import DeterministicEngine, EventEnum, Events, EventsList, State
from ignite.engine import supervised_evaluation_step as supervised_evaluation_step
from ignite.engine import supervised_evaluation_step_amp as supervised_evaluation_step_amp
from ignite.engine import supervised_training_step as supervised_training_step
from ignite.engine import supervised_training_step_amp as supervised_training_step_amp
from ignite.engine.events import CallableEventWithFilter, RemovableEventHandle

from .engine import Engine
from .from_ignite import FromIgnite, as_ignite
from .front import StepEvents
from .supervised import create_supervised_evaluator, create_supervised_trainer

__all__ = [
    "CallableEventWithFilter",
    "DeterministicEngine",
    "Engine",
    "EventEnum",
    "Events",
    "EventsList",
    "FromIgnite",
    "RemovableEventHandle",
    "State",
    "StepEvents",
    "as_ignite",
    "create_supervised_evaluator",
    "create_supervised_trainer",
    "supervised_evaluation_step",
    "supervised_evaluation_step_amp",
    "supervised_training_step",
    "supervised_training_step_amp",
]
