"""What an iteration of the bridge costs, in calls: the same on every machine."""

import gc
import sys

import ignite.engine
import pytest
from ignite.engine import Events

from camshaft.handlers.bridges.ignite import Engine


def calls(make, handlers):
    """All calls, of Python and of C functions, that 100 more iterations add, by 100."""

    def run(iterations):
        engine, kinds = make(lambda engine, batch: None), []
        for event in handlers:
            engine.add_event_handler(event, lambda engine: None)
        sys.setprofile(lambda frame, event, argument: kinds.append(event))
        try:
            engine.run(range(iterations), max_epochs=1)
        finally:
            sys.setprofile(None)
        return kinds.count("call") + kinds.count("c_call")

    gc.disable()
    try:
        for _ in range(2):  # what imports and caches cost, the second time without the imports
            run(100)
        return (run(200) - run(100)) / 100
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "handlers",
    [
        [],
        [Events.ITERATION_STARTED, Events.ITERATION_COMPLETED],
        [Events.ITERATION_COMPLETED(every=1000)] * 4,
    ],
)
def test_an_iteration_makes_less_than_half_of_the_calls_of_ignites(handlers):
    """Time is measured by tests/benchmarks/ignite_loop.py: at most a third."""
    assert calls(Engine, handlers) <= calls(ignite.engine.Engine, handlers) / 2
