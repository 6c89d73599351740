"""Runs that fail and are resumed, and the one whose rows are read back from trackers' files.

As a script it is that run in a process of its own: `runs.py TRACKER`.
"""

import pickle
import sys

import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers import loggers
from camshaft.handlers.loggers import Histogram, Image, Text, delivery

EACH = Events.ITERATION_COMPLETED
HPARAMS = {"lr": 0.1, "model": {"width": 8}}
OPTIONS = {
    "Aim": {"directory": "board"},
    "ClearML": {
        **{"name": "mine", "offline": True},
        "options": {"auto_connect_frameworks": {"detect_repository": False}},
    },
    "Trackio": {},
}


def engine_of(logger, fail_at=None, media=("note", "seen", "weights")):
    """An engine that fails in one iteration, and has media of these names in the second one."""
    made = {"note": Text("words"), "seen": Image(torch.rand(3, 4, 5), "noise")}
    made["weights"] = Histogram.of(torch.rand(9), bins=3)

    def train_step(state, batch):
        if state.iteration == fail_at:
            raise RuntimeError("interrupted")
        state.metrics["loss"] = torch.tensor(1 / state.iteration)
        if state.iteration == 2:
            state.metrics["val/loss"] = 0.25
            state.metrics.update({name: made[name] for name in media})

    return Engine(train_step, logger)


def fail_and_resume(
    build, save=EACH(at=4), *, fail_at=6, data=range(8), max_epochs=1, between=lambda: None
):
    """Run an engine that fails after a save, then one that goes on from there.

    `between` is called before the second one is built.
    """
    saved, first = [], build(fail_at=fail_at)
    first.on(save)(lambda state: state.save("test"))
    first.on(Events.SAVING)(lambda state: saved.append(pickle.dumps(state.state_dict())))
    with pytest.raises(RuntimeError, match="interrupted"):
        first.run(data, max_epochs=max_epochs)
    between()
    second = build()
    if saved:  # else the run starts anew
        second.on(Events.LOADING)(lambda state: state.load_state_dict(pickle.loads(saved[-1])))
    second.run(data, max_epochs=max_epochs)


def tracked(fail_at=None, name=sys.argv[-1]):
    logger = getattr(loggers, name)
    return engine_of(logger("tests", when=EACH, hparams=HPARAMS, **OPTIONS[name]), fail_at)


if __name__ == "__main__":
    delivery.PATIENCE = 100  # at its end ClearML waits ten seconds offline
    fail_and_resume(tracked)
