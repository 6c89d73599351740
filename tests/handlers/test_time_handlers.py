"""What handlers cost, in real runs."""

import logging
import re
import time

import pytest

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, TimeHandlers, Validate


def rows(table):
    """Handler, moment and calls of each line, and the numbers of seconds."""
    lines = [re.split(r"\s{2,}", line) for line in table.splitlines()[1:-1]]
    return {(name, moment): (int(calls), float(total)) for name, moment, calls, total, _ in lines}


def slow(state):
    time.sleep(0.02)


def quick(state):
    pass


def timed(*handlers):
    timing = TimeHandlers()
    engine = Engine(lambda state, batch: None).add(timing, *handlers)
    engine.on(Events.ITERATION_COMPLETED(every=2))(quick)
    engine.on(Events.EPOCH_COMPLETED(every=2) | Events.STARTED)(slow)
    return engine, timing


def test_calls_and_seconds_are_told_by_handler_and_moment_the_most_expensive_first():
    engine, timing = timed()
    state = engine.run("abcd", max_epochs=4)
    found = rows(timing.table(state))
    assert found["quick", "Events.ITERATION_COMPLETED"][0] == 8
    assert found["slow", "Events.STARTED"][0] == 1
    assert found["slow", "Events.EPOCH_COMPLETED"][0] == 2
    assert found["slow", "Events.EPOCH_COMPLETED"][1] >= 0.04
    seconds = [total for _, total in found.values()]
    assert seconds == sorted(seconds, reverse=True)


def test_the_table_is_logged_at_the_end_also_of_a_run_that_fails(caplog):
    engine, _ = timed()
    engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: 1 / 0)
    with caplog.at_level(logging.INFO, "camshaft"), pytest.raises(ZeroDivisionError):
        engine.run("abcd", max_epochs=1)
    (record,) = caplog.records
    assert "slow" in record.getMessage()
    assert re.search(r"all handlers: [\d.]+ s of [\d.]+ s \([\d.]+%\), by the host", caplog.text)
    assert engine.signals.watches == engine.evaluation.signals.watches == []


def test_handlers_inside_an_evaluation_have_rows_and_count_once_in_the_sum():
    engine, timing = timed(Validate("xy"))
    engine.evaluation.on(Events.ITERATION_COMPLETED)(slow)
    state = engine.run("ab", max_epochs=1)
    table = timing.table(state)
    found = rows(table)
    calls, inside = found["slow.2", "Events.ITERATION_COMPLETED"]
    assert calls == 2
    assert found["Validate(val).evaluate", "Events.EPOCH_COMPLETED"][1] >= inside >= 0.04
    total, run = map(float, re.search(r"([\d.]+) s of ([\d.]+) s", table).groups())
    outer = sum(seconds for (name, _), (_, seconds) in found.items() if name != "slow.2")
    assert total == pytest.approx(outer, abs=0.001 * len(found))  # as they are rounded
    assert total <= run


def test_two_runs_are_timed_apart_and_a_run_can_be_looked_at_while_it_goes_on():
    engine, timing = timed()
    seen = []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: seen.append(timing.table(state)))
    first, second = (engine.run("ab", max_epochs=n) for n in (1, 2))
    moment = ("quick", "Events.ITERATION_COMPLETED")
    assert rows(timing.table(first))[moment][0] == 1
    assert rows(timing.table(second))[moment][0] == 2
    assert [rows(table)[moment][0] for table in seen] == [1, 1, 2]


def test_a_run_that_was_not_timed_has_no_table():
    _, timing = timed()
    with pytest.raises(ValueError, match="was not timed"):
        timing.table(Engine(lambda state, batch: None).run("a", max_epochs=1))


def test_a_checkpoint_neither_holds_nor_needs_times(tmp_path):
    def run(*handlers, epochs):
        checkpoint = Checkpoint(tmp_path, resume=True, background=False)
        return (
            Engine(lambda state, batch: None)
            .add(checkpoint, *handlers)
            .run("ab", max_epochs=epochs)
        )

    run(epochs=1)
    assert run(TimeHandlers(), epochs=2).iteration == 4
    assert run(epochs=3).iteration == 6
