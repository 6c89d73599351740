"""The run whose rows and media are read back from each tracker's files."""

import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers.loggers import Histogram, Image, Text

EACH = Events.ITERATION_COMPLETED
HPARAMS = {"lr": 0.1, "model": {"width": 8}}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A busy machine may take longer than a run would wait."""
    monkeypatch.setattr("camshaft.handlers.loggers.delivery.PATIENCE", 100)


def engine_of(logger, fail_at=None, media=("note", "seen")):
    """An engine that fails in one iteration, and has media of these names in the second one."""
    made = {"note": Text("words"), "seen": Image(torch.rand(3, 4, 5), "noise")}
    made["weights"] = Histogram.of(torch.rand(9), bins=3)

    def train_step(state, batch):
        if state.iteration == fail_at:
            raise RuntimeError("interrupted")
        state.metrics["loss"] = torch.tensor(1 / state.iteration)
        if state.iteration == 2:
            state.metrics.update({name: made[name] for name in media})

    return Engine(train_step, logger)
