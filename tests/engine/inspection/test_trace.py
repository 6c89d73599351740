"""What was called when: traces of real runs and of rehearsals."""

import sys
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft import Engine, EventEnum, Events, Stage, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, EarlyStopping, Validate


class Own(EventEnum):
    PING = "ping"


def report(state):
    pass


def ping(state, batch):
    state.fire(Own.PING)


def test_a_rehearsal_calls_neither_process_nor_handlers():
    def never(*arguments):
        raise AssertionError("called")

    engine = Engine(lambda state, batch: never())
    engine.on(Events.EPOCH_COMPLETED)(lambda state: never())
    assert len(engine.simulate(max_epochs=2, epoch_length=5)) == 2


def test_a_rehearsal_reads_line_by_line():
    engine = Engine(lambda state, batch: None)
    engine.on(Events.ITERATION_COMPLETED(every=2))(report)
    lines = [str(call) for call in engine.simulate(max_epochs=1, epoch_length=5)]
    assert lines == [
        "epoch 1, iteration 2: Events.ITERATION_COMPLETED report",
        "epoch 1, iteration 4: Events.ITERATION_COMPLETED report",
    ]


def test_a_rehearsal_takes_predicates_to_be_true_and_leaves_out_seconds():
    engine = Engine(lambda state, batch: None)
    engine.on(Events.EPOCH_COMPLETED(where=lambda state: state.metrics["none"] > 1))(report)
    engine.on(Events.ITERATION_COMPLETED(seconds=1e-9))(lambda state: None)
    assert [call.handler for call in engine.simulate(max_epochs=1, epoch_length=2)] == ["report"]


def test_a_rehearsal_leaves_no_trace_in_the_engine():
    engine = Engine(lambda state, batch: None)
    calls = []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: calls.append(state.epoch))
    engine.simulate(max_epochs=4, epoch_length=1)
    assert engine.run("a", max_epochs=1).epoch == 1
    assert calls == [1]


BATCHES = [(torch.ones(4, 2), torch.ones(4, 1))] * 5


def trained(accumulate=1):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return supervised(model, optimizer, torch.nn.functional.mse_loss, accumulate=accumulate)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_rehearsal_equals_the_trace_of_a_run_with_evaluation_and_all_kinds_of_triggers(
    accumulate,
):
    engine = trained(accumulate).add(
        ClipGradNorm(1.0), Validate(BATCHES), EarlyStopping("val/loss")
    )
    engine.on(Events.STEP_COMPLETED(every=3, last=True))(report)
    engine.on(Events.ITERATION_COMPLETED(at=(2, 7)) | Events.GRADIENTS_READY(after=2))(report)
    engine.on(Events.EPOCH_STARTED(once=True), stage=Stage.MEASURE)(report)
    engine.on(Events.ITERATION_STARTED(every=4, once=True))(report)
    with engine.record() as trace:
        engine.run(BATCHES, max_epochs=2)
    assert trace.outer == engine.simulate(max_epochs=2, epoch_length=5)
    inside = [call for call in trace if call.depth]
    assert {call.training for call in inside} == {False}
    assert [
        call._replace(depth=0, training=True) for call in inside
    ] == 2 * engine.evaluation.simulate(max_epochs=1, epoch_length=5)


conditions = st.fixed_dictionaries(
    {},
    optional={
        "every": st.integers(1, 4),
        "at": st.sets(st.integers(1, 9), min_size=1),
        "after": st.integers(1, 4),
        "last": st.booleans(),
        "once": st.booleans(),
    },
)
events = st.sampled_from([*(set(Events) - {Events.FAILED, Events.SAVING}), Own.PING])
handlers = st.tuples(events, conditions, st.sampled_from(Stage))


@settings(max_examples=50)
@given(st.lists(handlers, max_size=6), st.integers(1, 3), st.integers(1, 4))
def test_any_rehearsal_equals_the_trace_of_the_real_run(chosen, epochs, length):
    engine = Engine(ping)
    for event, given_, stage in chosen:
        with suppress(ValueError):  # conditions that can never hold
            engine.on(event(**given_), stage=stage)(partial(report))
    with engine.record() as trace:
        engine.run(range(length), max_epochs=epochs)
    assert trace == engine.simulate(max_epochs=epochs, epoch_length=length, process=ping)


def test_another_order_of_attachment_is_visible():
    def run(*names):
        engine = Engine(lambda state, batch: None)
        for name in names:
            handler = lambda state: None  # noqa: E731
            handler.__qualname__ = name
            engine.on(Events.EPOCH_COMPLETED)(handler)
        with engine.record() as trace:
            engine.run("ab", max_epochs=1)
        return trace

    trace = run("first", "second")
    assert trace == run("first", "second")
    assert trace.diff(run("first", "second")) == ""
    assert trace != run("second", "first")
    assert trace.diff(run("second", "first")).splitlines()[1:] == [
        "+epoch 1, iteration 2: Events.EPOCH_COMPLETED second",
        " epoch 1, iteration 2: Events.EPOCH_COMPLETED first",
        "-epoch 1, iteration 2: Events.EPOCH_COMPLETED second",
    ]


def test_a_trace_prints_one_line_a_call_under_its_iteration():
    engine = Engine(ping).add(Validate([1]))
    engine.on(Own.PING)(report)
    engine.evaluation.on(Events.EPOCH_COMPLETED)(report)
    with engine.record() as trace:
        engine.run("a", max_epochs=1)
    assert str(trace) == (
        "epoch 1, iteration 1\n"
        "  Own.PING 1              report\n"
        "  Events.EPOCH_COMPLETED  Validate(val).evaluate\n"
        "  evaluation, epoch 1, iteration 1\n"
        "    Events.EPOCH_COMPLETED  report.2"
    )
    assert str(Engine(ping).simulate(max_epochs=1, epoch_length=1)) == "no calls"


def test_what_a_handler_fires_is_within_its_call():
    engine = Engine(lambda state, batch: None)
    engine.on(Events.ITERATION_COMPLETED)(lambda state: state.fire(Own.PING))
    engine.on(Own.PING)(report)
    with engine.record() as trace:
        engine.run("a", max_epochs=1)
    assert [(call.handler, call.depth) for call in trace] == [("<lambda>", 0), ("report", 1)]
    assert trace.outer == engine.simulate(max_epochs=1, epoch_length=1)


def test_what_is_recorded_can_be_chosen_by_event_and_bounded():
    engine = Engine(ping)
    engine.on(Own.PING | Events.ITERATION_COMPLETED)(report)
    with engine.record(Own.PING) as pings, engine.record(last=3) as latest:
        engine.run("abcd", max_epochs=1)
    assert [(call.event, call.number) for call in pings] == [(Own.PING, n) for n in (1, 2, 3, 4)]
    assert [(call.event, call.number) for call in latest] == [
        (Events.ITERATION_COMPLETED, 3),
        (Own.PING, 4),
        (Events.ITERATION_COMPLETED, 4),
    ]


def test_a_save_is_recorded_and_foreseen_by_nobody(tmp_path):
    engine = Engine(ping).add(Checkpoint(tmp_path, background=False))
    with engine.record() as trace:
        engine.run("ab", max_epochs=1)
    known = [call for call in trace if call.event is not Events.SAVING]
    assert known == engine.simulate(max_epochs=1, epoch_length=2)
    assert [call.handler for call in trace if call.event is Events.SAVING] == ["Checkpoint.save"]


def test_recording_can_begin_and_end_in_the_middle_of_a_run():
    engine, traces = Engine(ping), []
    recording = engine.record()
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: traces.append(recording.__enter__()))
    engine.on(Events.ITERATION_COMPLETED(at=4))(lambda state: recording.__exit__(None, None, None))
    engine.on(Events.ITERATION_STARTED)(report)
    engine.run("abcdef", max_epochs=1)
    (trace,) = traces
    assert [call.iteration for call in trace if call.handler == "report"] == [3, 4]


def test_receivers_that_are_muted_or_connected_for_a_while_are_recorded_as_called():
    engine = Engine(ping)
    signal = engine.signal(Own.PING)

    def once(state):
        signal.disconnect(once)

    signal.connect(once)
    with engine.record() as trace:
        engine.run("ab", max_epochs=1)
        with signal.connected_to(report):
            engine.run("a", max_epochs=1)
            with signal.muted():
                engine.run("a", max_epochs=1)
    assert [call.handler.rpartition(".")[2] for call in trace] == ["once", "report"]


def test_a_handler_that_raises_is_recorded_and_named_and_nothing_stays_behind():
    engine = Engine(ping)

    @engine.on(Own.PING)
    def fails(state):
        raise ZeroDivisionError

    engine.on(Events.CLOSED)(report)
    with pytest.raises(ZeroDivisionError) as caught, engine.record() as trace:
        engine.run("a", max_epochs=1)
    assert [(call.handler, call.depth) for call in trace] == [("fails", 0), ("report", 0)]
    assert "in Own.PING, handler fails" in caught.value.__notes__[0]
    assert engine.signals.watches == engine.evaluation.signals.watches == []


def test_handlers_are_called_by_nobody_else_when_nothing_is_recorded():
    engine, callers = Engine(ping), []
    engine.on(Own.PING)(lambda state: callers.append(sys._getframe(1).f_code.co_filename))
    engine.run("a", max_epochs=1)
    with engine.record():
        engine.run("a", max_epochs=1)
    engine.run("a", max_epochs=1)
    assert [Path(each).name for each in callers] == ["moments.py", "trace.py", "moments.py"]


def test_two_engines_are_recorded_apart():
    inner, outer = Engine(ping), Engine(ping)
    inner.on(Own.PING)(report)
    outer.on(Own.PING)(lambda state: inner.run("a", max_epochs=1, parent=state))
    with outer.record() as trace:
        outer.run("a", max_epochs=1)
    assert [call.handler for call in trace] == ["<lambda>"]


def test_a_notebook_shows_the_text_of_a_trace_and_of_a_long_one_the_beginning():
    engine = Engine(lambda state, batch: None)
    engine.on(Events.ITERATION_COMPLETED)(lambda state: None)
    short, long = (engine.simulate(max_epochs=1, epoch_length=length) for length in (2, 600))
    assert short._repr_html_() == f"<pre>{escape(str(short))}</pre>"
    assert "lambda&gt;" in short._repr_html_()
    assert long._repr_html_().count("lambda") == 500
    assert "and 100 more calls" in long._repr_html_()
