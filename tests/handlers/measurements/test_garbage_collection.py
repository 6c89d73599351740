"""Garbage collection by a trigger."""

import gc

import pytest

from camshaft import Engine, Events
from camshaft.handlers import GarbageCollection


@pytest.fixture
def collections():
    """The generations that were collected, as a list that grows."""
    seen = []

    def look(phase, about):
        if phase == "start":
            seen.append(about["generation"])

    gc.callbacks.append(look)
    yield seen
    gc.callbacks.remove(look)


def test_garbage_is_collected_by_its_trigger_and_at_no_other_time(collections):
    def make_garbage(state, batch):
        for _ in range(2000):
            cycle = []
            cycle.append(cycle)

    engine = Engine(make_garbage, GarbageCollection(when=Events.ITERATION_COMPLETED(every=4)))
    began, at = [], []
    engine.on(Events.STARTED)(lambda state: began.append(len(collections)))

    @engine.on(Events.ITERATION_STARTED)
    def look(state):
        at.append(len(collections) - began[0])

    engine.run(range(10), max_epochs=1)
    assert at == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert collections[began[0] :][:2] == [1, 1]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("enabled", [True, False])
def test_afterwards_python_collects_as_before(enabled, fails):
    def step(state, batch):
        assert not gc.isenabled()
        if fails:
            raise RuntimeError("no")

    engine = Engine(step, GarbageCollection())
    (gc.enable if enabled else gc.disable)()
    try:
        if fails:
            with pytest.raises(RuntimeError, match="no"):
                engine.run([1], max_epochs=1)
        else:
            engine.run([1], max_epochs=1)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_a_run_inside_the_run_gives_nothing_back_too_early():
    inner = Engine(lambda state, batch: None, GarbageCollection())
    engine = Engine(lambda state, batch: inner.run([1], max_epochs=1), GarbageCollection())
    engine.on(Events.ITERATION_COMPLETED)(lambda state: seen.append(gc.isenabled()))
    seen = []
    engine.run([1], max_epochs=1)
    assert seen == [False]
    assert gc.isenabled()
