"""Filters of ignite's events on the bridge: when they let a handler be called, how they show."""

import ignite.engine
import pytest
from ignite.engine import Events

from camshaft.handlers.bridges.ignite import Engine


def third(engine, count):
    return count == 3


FILTERS = {
    "every=3": {"every": 3},
    "every=3, after=0": {"every": 3, "after": 0},
    "every=3, after=4": {"every": 3, "after": 4},
    "every=3, before=5": {"every": 3, "before": 5},
    "every=2, after=3, before=9": {"every": 2, "after": 3, "before": 9},
    "every=2, before=0": {"every": 2, "before": 0},
    "before=1": {"before": 1},
    "after=0": {"after": 0},
    "after=2, before=5": {"after": 2, "before": 5},
    "once=4": {"once": 4},
    "once=[2, 5]": {"once": [2, 5]},
    "event_filter=third": {"event_filter": third},
    "": {"every": 1},
}


def engine_with(make, conditions, seen):
    engine = make(lambda engine, batch: batch)

    @engine.on(Events.ITERATION_COMPLETED(**conditions))
    def note(engine):
        seen.append(engine.state.iteration)

    return engine


@pytest.mark.parametrize(("shown", "conditions"), FILTERS.items())
def test_a_filter_lets_pass_what_it_does_on_ignites_engine_and_shows_as_written(shown, conditions):
    """The filter `every=3, after=0` counts from 1 on, so it is another one than `every=3`."""
    expected, found = [], []
    engine_with(ignite.engine.Engine, conditions, expected).run(range(5), max_epochs=2)
    engine = engine_with(Engine, conditions, found)
    engine.run(range(5), max_epochs=2)
    assert found == expected
    assert [row.when for row in engine.describe().rows if row.handler == "note"] == [shown]
