"""Signals in blinker's vocabulary."""

import blinker
import pytest

from camshaft import Engine, Events, Stage


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


def test_the_same_function_attached_twice_is_called_twice():
    engine, calls = engine_with_calls()
    engine.on(Events.STARTED)(calls.append)
    engine.on(Events.STARTED)(calls.append)
    engine.run("a", max_epochs=1)
    assert len(calls) == 2


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
