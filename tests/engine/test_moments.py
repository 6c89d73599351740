"""Compiled triggers and signals: who is called when, in real runs."""

import time

import blinker
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft import Engine, EventEnum, Events, Stage
from camshaft.handlers import Checkpoint


class Own(EventEnum):
    PING = "ping"


def ping(state, batch):
    state.fire(Own.PING)


CLOCKS = {
    Events.ITERATION_COMPLETED: lambda state: state.iteration,
    Events.ITERATION_STARTED: lambda state: state.iteration,
    Events.EPOCH_COMPLETED: lambda state: state.epoch,
    Own.PING: lambda state: state.counts[Own.PING],
}
counts = st.integers(1, 9)
clauses = st.tuples(
    st.sampled_from(list(CLOCKS)),
    st.fixed_dictionaries(
        {},
        optional={
            "every": counts,
            "at": st.sets(counts, min_size=1),
            "after": counts,
            "before": st.integers(2, 20),
            "where": st.just(lambda state: state.iteration % 2 == 1),
            "once": st.booleans(),
            "last": st.booleans(),
        },
    ),
)


def reference(chosen, epochs, length):
    """When a handler with these clauses is called, by asking each clause at each event."""
    calls, spent = [], set()

    def ask(event, count, iteration):
        for number, (own, conditions) in enumerate(chosen):
            fits = own is event and number not in spent
            fits = fits and count % conditions.get("every", 1) == 0
            fits = fits and count in conditions.get("at", {count})
            fits = fits and conditions.get("after", 0) < count < conditions.get("before", 10**9)
            if fits and ("where" not in conditions or iteration % 2 == 1):
                if conditions.get("once"):
                    spent.add(number)
                return True
        return False

    def occur(event, count, iteration):
        if ask(event, count, iteration):
            calls.append((event.name, iteration))

    iteration = 0
    for epoch in range(1, epochs + 1):
        for _ in range(length):
            iteration += 1
            occur(Events.ITERATION_STARTED, iteration, iteration)
            occur(Own.PING, iteration, iteration)
            occur(Events.ITERATION_COMPLETED, iteration, iteration)
        occur(Events.EPOCH_COMPLETED, epoch, iteration)
    wants_end = any(conditions.get("last") for _, conditions in chosen)
    if wants_end and (not calls or calls[-1][1] != iteration):
        calls.append(("COMPLETED", iteration))
    return calls


@settings(max_examples=200, deadline=None)
@given(st.lists(clauses, min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 6))
def test_a_run_calls_handlers_exactly_as_the_definition_says(chosen, epochs, length):
    # A once-clause that is plain is judged by its count alone, so it may be shadowed by another
    # clause at the same count without being spent later; equal clauses are one clause.
    triggers = []
    for event, conditions in chosen:
        try:
            triggers.append(event(**conditions))
        except ValueError:
            return
    trigger = triggers[0]
    for other in triggers[1:]:
        trigger = trigger | other
    if len(chosen) > 1 and any(conditions.get("once") for _, conditions in chosen):
        return
    engine, calls = Engine(ping), []
    current = []
    for event in CLOCKS:
        engine.on(event)(lambda state, event=event: current.append(event.name))
    engine.on(Events.COMPLETED)(lambda state: current.append("COMPLETED"))
    engine.on(trigger)(lambda state: calls.append((current[-1], state.iteration)))
    engine.run(range(length), max_epochs=epochs)
    assert calls == reference(chosen, epochs, length)


def fired_at(trigger, length, epochs):
    engine, calls = Engine(ping), []
    engine.on(trigger)(lambda state: calls.append(state.iteration))
    engine.run(range(length), max_epochs=epochs)
    return calls


EACH = Events.ITERATION_COMPLETED


@pytest.mark.parametrize(
    ("trigger", "length", "epochs", "calls"),
    [
        pytest.param(EACH(every=2) | EACH(every=3), 6, 1, [2, 3, 4, 6], id="once where they meet"),
        pytest.param(Own.PING(every=2), 6, 1, [2, 4, 6], id="of an event of ones own"),
        pytest.param(EACH(every=10, last=True), 64, 3, [*range(10, 191, 10), 192], id="and last"),
        pytest.param(EACH(every=64, last=True), 64, 3, [64, 128, 192], id="last is one of them"),
        pytest.param(Events.EPOCH_COMPLETED(last=True), 64, 3, [64, 128, 192], id="of epochs"),
        pytest.param(EACH(every=4, after=10, once=True), 64, 3, [12], id="once, by all conditions"),
        pytest.param(
            EACH(where=lambda state: state.epoch == 2, once=True), 64, 3, [65], id="once, by where"
        ),
        pytest.param(EACH(seconds=3600), 64, 3, [], id="seconds that are not over"),
        pytest.param(
            Events.EPOCH_COMPLETED(seconds=1e-9), 64, 3, [64, 128, 192], id="seconds that are over"
        ),
    ],
)
def test_a_trigger_calls_at_its_counts(trigger, length, epochs, calls):
    assert fired_at(trigger, length, epochs) == calls


def test_the_last_call_comes_also_when_the_run_is_stopped_inside_an_epoch():
    engine, calls = Engine(ping), []
    engine.on(Events.EPOCH_COMPLETED(last=True))(lambda state: calls.append(state.iteration))
    engine.on(Events.ITERATION_COMPLETED(at=7))(lambda state: state.stop("enough"))
    engine.run(range(5), max_epochs=3)
    assert calls == [5, 7]


def test_there_is_no_last_call_after_an_error():
    def process(state, batch):
        if state.iteration == 3:
            raise ZeroDivisionError

    engine, calls = Engine(process), []
    engine.on(Events.ITERATION_COMPLETED(every=2, last=True))(
        lambda state: calls.append(state.iteration)
    )
    with pytest.raises(ZeroDivisionError):
        engine.run(range(9), max_epochs=1)
    assert calls == [2]


def test_a_predicate_is_asked_after_the_handlers_before_it():
    engine, calls = Engine(ping), []

    @engine.on(Events.ITERATION_COMPLETED)
    def measure(state):
        state.metrics["seen"] = state.iteration

    trigger = Events.ITERATION_COMPLETED(where=lambda state: state.metrics["seen"] == 2)
    engine.on(trigger)(lambda state: calls.append(state.iteration))
    engine.run(range(3), max_epochs=1)
    assert calls == [2]


def test_seconds_are_counted_from_the_beginning_of_the_run_and_then_from_call_to_call():
    calls = []

    def process(state, batch):
        time.sleep(0.02)

    engine = Engine(process)
    engine.on(Events.ITERATION_COMPLETED(seconds=0.1))(lambda state: calls.append(time.monotonic()))
    began = time.monotonic()
    engine.run(range(40), max_epochs=1)
    gaps = [later - earlier for earlier, later in zip([began, *calls], calls, strict=False)]
    assert len(calls) >= 3
    assert all(gap >= 0.1 for gap in gaps)


def test_the_clock_is_looked_at_a_few_times_only(monkeypatch):
    looks = []
    real = time.monotonic
    engine = Engine(lambda state, batch: None)
    engine.on(Events.ITERATION_COMPLETED(seconds=3600))(lambda state: None)
    monkeypatch.setattr(time, "monotonic", lambda: looks.append(1) or real())
    engine.run(range(100_000), max_epochs=1)
    assert len(looks) < 100


def test_a_handler_attached_during_a_run_takes_effect_at_the_next_moment():
    engine, calls = Engine(ping), []

    def late(state):
        calls.append(state.iteration)

    engine.on(Events.ITERATION_COMPLETED(at=2))(
        lambda state: engine.on(Events.ITERATION_COMPLETED)(late)
    )
    engine.run(range(4), max_epochs=1)
    assert calls == [3, 4]


def test_a_handler_detached_during_a_run_is_still_called_in_this_moment_only():
    engine, calls = Engine(ping), []

    @engine.on(Events.ITERATION_COMPLETED(at=2))
    def detach(state):
        engine.off(victim)

    @engine.on(Events.ITERATION_COMPLETED)
    def victim(state):
        calls.append(state.iteration)

    engine.run(range(4), max_epochs=1)
    assert calls == [1, 2]


def test_a_handler_attached_late_keeps_to_absolute_counts():
    engine, calls = Engine(ping), []

    @engine.on(Events.ITERATION_COMPLETED(at=5))
    def attach(state):
        engine.on(Events.ITERATION_COMPLETED(every=3))(lambda state: calls.append(state.iteration))

    engine.run(range(10), max_epochs=1)
    assert calls == [6, 9]


def test_triggers_fire_at_the_same_counts_whether_a_run_is_interrupted_or_not():
    def run(stop_at=None):
        engine, calls = Engine(ping), []
        trigger = Events.ITERATION_COMPLETED(every=4) | Own.PING(every=7)
        engine.on(trigger)(lambda state: calls.append(state.iteration))
        engine.on(Events.EPOCH_COMPLETED(every=2))(lambda state: calls.append(-state.epoch))
        if stop_at:
            stop = Events.ITERATION_COMPLETED(at=stop_at, once=True)
            engine.on(stop)(lambda state: state.stop("pause"))
        state = engine.run(range(10), max_epochs=5)
        engine.run(range(10), state=state)
        return calls

    whole = run()
    for stop_at in range(1, 50):
        assert run(stop_at) == whole


def resumed_at(trigger, stop_at, directory, patience=0.0):
    """The iterations in which a handler was called, in a run that another process goes on with."""

    def part(last):
        engine, calls = Engine(ping, Checkpoint(directory, resume=True)), []
        engine.on(Events.ITERATION_STARTED)(lambda state: time.sleep(patience))

        @engine.on(trigger)
        def note(state):
            calls.append(state.iteration)

        engine.run(range(10), max_iterations=last)
        return calls

    return [*part(stop_at), *part(10)]


@pytest.mark.filterwarnings("ignore:nothing that trains")
@pytest.mark.parametrize("stop_at", [2, 5, 8])
def test_once_is_once_in_a_resumed_run_whatever_the_other_conditions(stop_at, tmp_path):
    late = {"where": lambda state: state.iteration > 3, "once": True}
    assert resumed_at(Events.ITERATION_COMPLETED(**late), stop_at, tmp_path / "where") == [4]
    timed = {"seconds": 0.02, "once": True}
    found = resumed_at(Events.ITERATION_COMPLETED(**timed), stop_at, tmp_path / "seconds", 0.015)
    assert len(found) == 1


def engine_with_calls():
    return Engine(lambda state, batch: batch), []


def test_a_signal_is_one_of_blinkers_and_its_sender_is_the_state():
    engine, calls = engine_with_calls()
    signal = engine.signal(Events.EPOCH_COMPLETED)
    assert isinstance(signal, blinker.Signal)
    signal.connect(calls.append)
    state = engine.run("ab", max_epochs=1)
    assert calls == [state]


def test_each_event_has_one_signal():
    engine, _ = engine_with_calls()
    assert engine.signal(Events.STARTED) is engine.signal(Events.STARTED)
    assert engine.signal(Events.STARTED) is not engine.signal(Events.CLOSED)


def test_a_receiver_can_be_connected_for_the_length_of_a_with_block():
    engine, calls = engine_with_calls()
    with engine.signal(Events.EPOCH_COMPLETED).connected_to(calls.append):
        engine.run("ab", max_epochs=1)
    engine.run("ab", max_epochs=1)
    assert len(calls) == 1


def test_a_muted_signal_calls_nobody():
    engine, calls = engine_with_calls()
    engine.on(Events.EPOCH_COMPLETED)(calls.append)
    with engine.signal(Events.EPOCH_COMPLETED).muted():
        engine.run("ab", max_epochs=1)
    assert calls == []
    engine.run("ab", max_epochs=1)
    assert len(calls) == 1


def test_a_signal_can_be_muted_during_a_run():
    engine, calls = engine_with_calls()
    signal = engine.signal(Events.ITERATION_COMPLETED)
    engine.on(Events.ITERATION_COMPLETED)(lambda state: calls.append(state.iteration))

    @engine.on(Events.ITERATION_STARTED(at=2))
    def mute(state):
        signal.is_muted = True

    @engine.on(Events.ITERATION_STARTED(at=4))
    def unmute(state):
        signal.is_muted = False

    engine.run(range(5), max_epochs=1)
    assert calls == [1, 4, 5]


def test_a_closure_that_nobody_else_holds_stays_connected():
    engine, calls = engine_with_calls()
    engine.signal(Events.STARTED).connect(lambda state: calls.append("called"))
    engine.run("a", max_epochs=1)
    assert calls == ["called"]


def test_weak_references_are_refused():
    engine, calls = engine_with_calls()
    with pytest.raises(ValueError, match="hold their receivers strongly"):
        engine.signal(Events.STARTED).connect(calls.append, weak=True)


def test_receivers_are_called_in_the_order_they_were_connected():
    engine, calls = engine_with_calls()
    for number in range(50):
        engine.signal(Events.STARTED).connect(lambda state, number=number: calls.append(number))
    engine.run("a", max_epochs=1)
    assert calls == list(range(50))


def test_what_is_connected_here_acts_after_what_measures_and_before_what_reports():
    engine, calls = engine_with_calls()
    engine.on(Events.STARTED, stage=Stage.REPORT)(lambda state: calls.append("report"))
    engine.signal(Events.STARTED).connect(lambda state: calls.append("act"))
    engine.on(Events.STARTED, stage=Stage.MEASURE)(lambda state: calls.append("measure"))
    engine.run("a", max_epochs=1)
    assert calls == ["measure", "act", "report"]


def test_what_engine_on_attached_can_be_disconnected_by_its_function():
    engine, calls = engine_with_calls()

    @engine.on(Events.STARTED)
    def report(state):
        calls.append(1)

    engine.signal(Events.STARTED).disconnect(report)
    engine.run("a", max_epochs=1)
    assert calls == []


def test_a_receiver_can_listen_to_one_run_only():
    engine, calls = engine_with_calls()

    @engine.on(Events.STARTED(once=True))
    def listen_to_this_run(state):
        if state.max_epochs == 1:
            engine.signal(Events.EPOCH_COMPLETED).connect(calls.append, sender=state)

    first = engine.run("a", max_epochs=1)
    engine.run("a", max_epochs=2)
    assert calls == [first]


def test_a_receiver_of_the_wrong_arity_is_refused():
    engine, _ = engine_with_calls()
    with pytest.raises(TypeError, match="cannot be called with the state"):
        engine.signal(Events.STARTED).connect(lambda: None)


def test_runs_that_are_over_listen_no_longer():
    engine, _ = engine_with_calls()
    engine.run("a", max_epochs=1)
    with pytest.raises(ZeroDivisionError):
        Engine(lambda state, batch: 1 / 0).run("a", max_epochs=1)
    assert all(signal.listeners == [] for signal in engine.signals.values())
