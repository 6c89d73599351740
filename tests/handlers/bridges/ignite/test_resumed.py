"""A run with handlers of ignite that is resumed in the middle of an epoch is the same run."""

import pytest

from camshaft import Events
from camshaft.handlers import Checkpoint

from .sides import BATCHES, ByCamshaft, Everything, batches, same


def run(folder, stop=None):
    """A run with everything attached, which may be left in the middle of an epoch."""
    side = ByCamshaft()
    everything = Everything(side, folder / "pt")

    @side.engine.on(Events.ITERATION_COMPLETED)
    def leave(state):
        if state.iteration == stop:
            state.interrupt("left")

    side.engine.add(Checkpoint(folder / "run", resume=True))
    side.run(batches())
    return everything


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, BATCHES - 1, BATCHES, BATCHES + 4])
def test_resumed_in_mid_epoch(tmp_path, stop):
    whole = run(tmp_path / "whole")
    first = run(tmp_path / "cut", stop)
    assert first.side.state.iteration == stop
    second = run(tmp_path / "cut")
    assert same(whole.metrics, first.metrics + second.metrics)
    assert same(whole.rates, first.rates + second.rates)
    assert same(whole.remembered(), second.remembered())
