"""Runs that are left and carried on, and the batches that they see."""

import random

import numpy
import pytest
import torch

from camshaft import Engine, Events, State


def seed_everything(seed=0):
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def plain(batch):
    batch = batch[0] if isinstance(batch, list) else batch
    return batch.tolist() if isinstance(batch, torch.Tensor) else batch


@pytest.fixture
def seen_in():
    """The batches of a run, each with numbers that the step draws behind it.

    The run is left at each of `stops`. It is carried on as in a new process, with data made anew
    and a state that was loaded; or in this one, with the same data and state.
    """

    def seen_in(make, stops=(), *, epochs=3, anew=True, **arguments):
        seed_everything()
        seen = []
        engine = Engine(
            lambda state, batch: seen.append((plain(batch), torch.rand(()).item(), random.random()))
        )
        for stop in stops:
            left = Events.ITERATION_COMPLETED(at=stop, once=True)
            engine.on(left)(lambda state: state.stop("pause"))
        data = make()
        state = engine.run(data, max_epochs=epochs, **arguments)
        for stop in stops:
            seed_everything(stop + 50)
            if anew:
                saved, state, data = state.state_dict(), State(max_epochs=epochs), make()
                state.load_state_dict(saved)
                state.control.end = state.stop_reason = None
            engine.run(data, state=state, **arguments)
        assert state.stop_reason == "max_epochs"
        return seen

    return seen_in


@pytest.fixture
def doubts(caplog):
    """What a run that saves after each iteration says of its data."""

    def doubts(data, step=lambda state, batch: None):
        engine = Engine(step)
        engine.on(Events.SAVING)(lambda state: None)
        engine.on(Events.ITERATION_COMPLETED)(lambda state: state.save("often"))
        caplog.clear()
        with caplog.at_level("WARNING", "camshaft"):
            engine.run(data, max_epochs=1)
        return caplog.messages

    return doubts
