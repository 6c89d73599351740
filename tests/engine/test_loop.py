"""Runs: limits, epochs, stopping, carrying on, failing, the commit point."""

import gc
import logging
import resource
import sys
import threading
import warnings
import weakref
from functools import partial

import numpy
import pytest

from camshaft import Engine, EventEnum, Events, State


def idle(state, batch):
    return batch


def recording():
    """An engine whose process function lists the batches it gets."""
    batches = []
    return Engine(lambda state, batch: batches.append(batch)), batches


@pytest.mark.parametrize(
    ("limits", "iterations", "epochs", "reason"),
    [
        ({"max_epochs": 3}, 12, 3, "max_epochs"),
        ({"max_iterations": 6}, 6, 2, "max_iterations"),
        ({"max_iterations": 8}, 8, 2, "max_iterations"),
        ({"max_epochs": 1, "max_iterations": 100}, 4, 1, "max_epochs"),
        ({"max_epochs": 0}, 0, 0, "max_epochs"),
    ],
)
def test_the_first_limit_ends_the_run(limits, iterations, epochs, reason):
    state = Engine(idle).run("abcd", **limits)
    assert (state.iteration, state.epoch, state.stop_reason) == (iterations, epochs, reason)


@pytest.mark.parametrize("event", [Events.STEP_COMPLETED, Events.ITERATION_COMPLETED])
@pytest.mark.parametrize("limit", ["max_iterations", "max_steps"])
def test_a_limit_that_a_handler_sets_below_what_is_reached_ends_the_run(limit, event, caplog):
    engine = Engine(lambda state, batch: state.fire(Events.STEP_COMPLETED))

    @engine.on(event(at=3))
    def lower(state):
        setattr(state, limit, 2)

    state = engine.run(range(8), **{limit: 100})
    assert (state.iteration, state.step, state.stop_reason) == (3, 3, limit)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("length", "error"), [(0, ValueError), (-1, ValueError), (2.5, TypeError), (True, TypeError)]
)
def test_a_length_of_epochs_that_cannot_be_is_refused(length, error):
    engine = Engine(idle)
    for run in (engine.run, engine.evaluate):
        with pytest.raises(error, match=rf"epoch_length={length}: needs a"):
            run([1, 2], epoch_length=length, **({"max_epochs": 1} if run == engine.run else {}))
    assert engine.run([1, 2], max_epochs=2, epoch_length=numpy.int64(3)).iteration == 6


@pytest.mark.parametrize(("now", "ends"), [(3, 3), (6, 6), (None, 8)])
def test_a_limit_of_iterations_that_changes_inside_an_epoch_counts_at_once(now, ends):
    engine, batches = recording()
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: setattr(state, "max_iterations", now))
    state = engine.run("abcdefgh", max_iterations=5, max_epochs=1)
    assert (batches, state.iteration) == ([*"abcdefgh"[:ends]], ends)


@pytest.mark.parametrize(
    ("limits", "error", "says"),
    [
        ({}, ValueError, "a run needs a limit: pass max_epochs="),
        ({"max_epochs": 2.0}, TypeError, "needs a whole number"),
        ({"max_steps": True}, TypeError, "needs a whole number"),
        ({"max_iterations": -1}, ValueError, "not negative"),
    ],
)
def test_a_run_without_a_proper_limit_is_refused(limits, error, says):
    with pytest.raises(error, match=says):
        Engine(idle).run("ab", **limits)


def test_a_run_that_ends_inside_an_epoch_does_not_complete_it():
    engine, completed = Engine(idle), []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: completed.append(state.epoch))
    engine.run("abcd", max_iterations=6)
    assert completed == [1]
    engine.run("abcd", max_iterations=8)
    assert completed == [1, 1, 2]


def test_epochs_may_differ_in_length():
    class Shrinking:
        lengths = iter([5, 3, 4])

        def __iter__(self):
            return iter(range(next(self.lengths)))

    engine, lengths = Engine(idle), []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: lengths.append(state.iteration_in_epoch))
    engine.run(Shrinking(), max_epochs=3)
    assert lengths == [5, 3, 4]


def test_a_virtual_epoch_carries_its_iterator_on_and_begins_the_data_again():
    engine, batches = recording()
    ends = []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: ends.append(state.iteration))
    engine.run("abcde", max_epochs=4, epoch_length=3)
    assert "".join(batches) == "abcdeabcdeab"
    assert ends == [3, 6, 9, 12]


def test_one_long_iterator_can_be_cut_into_epochs():
    state = Engine(idle).run(iter(range(100)), max_epochs=4, epoch_length=25)
    assert (state.iteration, state.epoch) == (100, 4)


def test_empty_data_is_an_error():
    with pytest.raises(ValueError, match="the data is empty"):
        Engine(idle).run([], max_epochs=1)
    with pytest.raises(ValueError, match="the data is empty"):
        Engine(idle).run([], max_epochs=1, epoch_length=3)


def test_data_of_unknown_length_works():
    state = Engine(idle).run((i for i in range(7)), max_iterations=100, max_epochs=1)
    assert (state.iteration, state.epoch_length) == (7, None)


def test_a_handler_stops_the_run_after_the_current_iteration():
    engine, batches = recording()
    engine.on(Events.ITERATION_STARTED(at=3))(lambda state: state.stop("enough"))
    state = engine.run("abcde", max_epochs=2)
    assert "".join(batches) == "abc"
    assert (state.stop_reason, state.iteration) == ("enough", 3)


def test_the_first_reason_to_stop_stays():
    state = State()
    state.stop("first")
    state.stop("second")
    assert state.stop_reason == "first"


def test_a_stopped_run_is_completed():
    engine, seen = Engine(idle), []
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.stop("enough"))
    engine.on(Events.COMPLETED)(lambda state: seen.append(state.stop_reason))
    engine.run("abc", max_epochs=1)
    assert seen == ["enough"]


def test_stopping_before_the_first_epoch_runs_nothing():
    engine, batches = recording()
    engine.on(Events.STARTED)(lambda state: state.stop("not today"))
    assert engine.run("abc", max_epochs=1).stop_reason == "not today"
    engine, batches = recording()
    engine.on(Events.EPOCH_STARTED)(lambda state: state.stop("not today"))
    engine.run("abc", max_epochs=1)
    assert batches == []


def test_an_epoch_that_is_stopped_is_completed_and_the_next_one_begins():
    engine, batches = recording()
    ends = []
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.stop_epoch())
    engine.on(Events.EPOCH_COMPLETED)(lambda state: ends.append(state.iteration))
    engine.run("abcd", max_epochs=2)
    assert "".join(batches) == "ababcd"
    assert ends == [2, 6]


def test_two_epochs_and_two_more_are_four():
    whole, whole_batches = recording()
    whole.run("abc", max_epochs=4)
    parts, batches = recording()
    state = parts.run("abc", max_epochs=2)
    again = parts.run("abc", max_epochs=4, state=state)
    assert again is state
    assert batches == whole_batches
    assert (state.epoch, state.iteration) == (4, 12)


@pytest.mark.parametrize("stopped_at", range(1, 10))
def test_a_run_stopped_inside_an_epoch_goes_on_with_the_next_batch(stopped_at):
    engine, batches = recording()
    events = []
    engine.on(Events.EPOCH_STARTED)(lambda state: events.append(("started", state.epoch)))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: events.append(("completed", state.epoch)))
    engine.on(Events.ITERATION_COMPLETED(at=stopped_at))(lambda state: state.stop("pause"))
    state = engine.run("abcde", max_epochs=2)
    assert state.iteration == stopped_at
    engine.run("abcde", state=state)
    assert "".join(batches) == "abcdeabcde"
    assert events == [("started", 1), ("completed", 1), ("started", 2), ("completed", 2)]


@pytest.mark.parametrize("stopped_at", range(1, 12))
def test_a_run_of_virtual_epochs_goes_on_with_the_next_batch(stopped_at):
    engine, batches = recording()
    engine.on(Events.ITERATION_COMPLETED(at=stopped_at))(lambda state: state.stop("pause"))
    state = engine.run("abcde", max_epochs=4, epoch_length=3)
    engine.run("abcde", state=state, epoch_length=3)
    assert "".join(batches) == "abcdeabcdeab"


def test_a_run_over_an_iterator_goes_on_where_the_iterator_stands():
    engine, batches = recording()
    letters = iter("abcdef")
    state = engine.run(letters, max_iterations=2)
    engine.run(letters, max_iterations=5, state=state)
    assert "".join(batches) == "abcde"


def test_carrying_on_with_shorter_data_is_an_error():
    engine = Engine(idle)
    engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.stop("pause"))
    letters = type("Letters", (), {"__iter__": lambda self: iter("abcde")})
    state = engine.run(letters(), max_epochs=1)
    letters.__iter__ = lambda self: iter("ab")
    with pytest.raises(ValueError, match="cannot carry on at batch 4 of the epoch: the data ended"):
        engine.run(letters(), state=state)


def test_carrying_on_in_mid_epoch_with_data_of_another_length_is_an_error_that_says_both():
    engine = Engine(idle)
    engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.stop("pause"))
    state = engine.run("abcde", max_epochs=1)
    with pytest.raises(ValueError, match=r"in the middle of epoch 1 with other data: batches 5 ->"):
        engine.run("abcdef", state=state)


def test_a_finished_run_carried_on_does_nothing_and_says_why(caplog):
    engine, batches = recording()
    state = engine.run("ab", max_epochs=1)
    fired = []
    for event in (Events.STARTED, Events.COMPLETED, Events.CLOSED):
        engine.on(event)(lambda state, event=event: fired.append(event))
    with caplog.at_level(logging.WARNING, "camshaft"):
        engine.run("ab", state=state)
    assert batches == ["a", "b"]
    assert fired == [Events.CLOSED]
    assert "nothing to run: the run is over (max_epochs) after 1 epochs" in caplog.text


def test_a_save_is_carried_out_once_after_every_handler_of_the_moment():
    engine, order = Engine(idle), []
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.save("asked first"))
    engine.on(Events.SAVING)(lambda state: order.append((state.iteration, *state.control.saves)))
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: order.append("last handler"))
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.save("asked last"))
    engine.run("abc", max_epochs=1)
    assert order == ["last handler", (2, ("asked first", None), ("asked last", None))]


@pytest.mark.parametrize(
    ("event", "iteration"),
    [
        (Events.STARTED, 0),
        (Events.EPOCH_STARTED, 0),
        (Events.ITERATION_STARTED(at=1), 1),
        (Events.EPOCH_COMPLETED, 3),
        (Events.COMPLETED, 3),
    ],
)
def test_a_save_asked_for_anywhere_is_carried_out(event, iteration):
    engine, saved = Engine(idle), []
    engine.on(event)(lambda state: state.save("please"))
    engine.on(Events.SAVING)(lambda state: saved.append(state.iteration))
    engine.run("abc", max_epochs=1)
    assert saved == [iteration]


class Own(EventEnum):
    PING = "ping"


def places_to_fail():
    """A process function, data and engines that fail in each place, with what the note says."""

    def failing_process(state, batch):
        if state.iteration == 2:
            raise ZeroDivisionError("boom")

    def failing_data():
        yield "a"
        raise ZeroDivisionError("boom")

    def raise_it(state):
        raise ZeroDivisionError("boom")

    for event in (Events.STARTED, Events.EPOCH_STARTED, Events.EPOCH_COMPLETED, Events.COMPLETED):
        engine = Engine(idle)
        engine.on(event)(raise_it)
        yield (
            engine,
            "ab",
            f"in {event!r}, handler places_to_fail.raise_it".replace("places_to_fail.", ""),
        )
    engine = Engine(idle)
    engine.on(Events.ITERATION_COMPLETED(at=2))(raise_it)
    yield engine, "ab", "epoch 1, iteration 2"
    yield Engine(failing_process), "ab", "in the process function failing_process, epoch 1"
    yield Engine(idle), failing_data(), "in the data, epoch 1, iteration 1"
    engine = Engine(lambda state, batch: state.fire(Own.PING))
    engine.on(Own.PING)(raise_it)
    yield engine, "ab", "in Own.PING, handler raise_it"


@pytest.mark.parametrize(("engine", "data", "says"), list(places_to_fail()))
def test_an_exception_comes_out_with_a_note_of_where_it_was_raised(engine, data, says):
    fired = []
    engine.on(Events.FAILED)(lambda state: fired.append(("failed", type(state.error))))
    engine.on(Events.CLOSED)(lambda state: fired.append(("closed", type(state.error))))
    with pytest.raises(ZeroDivisionError, match="boom") as caught:
        engine.run(data, max_epochs=1)
    assert len(caught.value.__notes__) == 1
    assert says in caught.value.__notes__[0]
    assert "epoch" in caught.value.__notes__[0]
    assert fired == [("failed", ZeroDivisionError), ("closed", ZeroDivisionError)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), ValueError("x")])
def test_the_same_exception_object_comes_out_also_ctrl_c(error):
    def process(state, batch):
        raise error

    engine, fired = Engine(process), []
    engine.on(Events.FAILED)(lambda state: fired.append(state.error))
    engine.on(Events.COMPLETED)(lambda state: fired.append("completed"))
    with pytest.raises(type(error)) as caught:
        engine.run("a", max_epochs=1)
    assert caught.value is error
    assert fired == [error]


def test_an_exception_of_an_evaluation_carries_both_places():
    def process(state, batch):
        if not state.training:
            raise ZeroDivisionError("boom")

    engine = Engine(process)

    @engine.on(Events.EPOCH_COMPLETED)
    def validate(state):
        engine.evaluate("xy", parent=state)

    with pytest.raises(ZeroDivisionError) as caught:
        engine.run("abc", max_epochs=1)
    inner, outer = caught.value.__notes__
    assert "evaluation, epoch 1, iteration 1" in inner
    assert "handler validate" in outer
    assert "epoch 1, iteration 3" in outer


def test_every_handler_of_closed_has_its_turn_whatever_the_others_raise():
    engine, closed = Engine(idle), []

    @engine.on(Events.CLOSED)
    def first(state):
        raise OSError("disk")

    engine.on(Events.CLOSED)(lambda state: closed.append("second"))
    with pytest.raises(OSError, match="disk") as caught:
        engine.run("a", max_epochs=1)
    assert closed == ["second"]
    assert "handler first" in caught.value.__notes__[0]


def test_an_error_while_closing_does_not_hide_the_one_that_ended_the_run():
    def process(state, batch):
        raise ZeroDivisionError("boom")

    engine = Engine(process)

    @engine.on(Events.FAILED | Events.CLOSED)
    def observe(state):
        raise OSError("disk")

    with pytest.raises(ZeroDivisionError) as caught:
        engine.run("a", max_epochs=1)
    assert caught.value.__notes__[1:] == ["then a handler raised OSError('disk')"] * 2


def test_a_run_can_be_carried_on_after_an_exception():
    engine, batches = recording()

    @engine.on(Events.ITERATION_COMPLETED(at=2, once=True))
    def fail(state):
        raise ZeroDivisionError

    state = State()
    with pytest.raises(ZeroDivisionError):
        engine.run("abcd", max_epochs=1, state=state)
    engine.off(fail)
    engine.run("abcd", state=state)
    assert "".join(batches) == "abcd"


@pytest.mark.parametrize(
    ("outer", "inner", "is_told"),
    [("run", "run", True), ("run", "evaluate", True), ("evaluate", "evaluate", False)],
)
def test_two_threads_that_run_engines_are_told_that_they_share_their_generators(
    outer, inner, is_told
):
    runs = {
        "run": lambda process: Engine(process).run("a", max_epochs=1),
        "evaluate": lambda process: Engine(idle, evaluate=process).evaluate("a"),
    }
    told = []

    def elsewhere():
        with warnings.catch_warnings(record=True, action="always") as caught:
            runs[inner](idle)
        told.extend(str(each.message)[:14] for each in caught)

    def during_another(state, batch):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    runs[outer](during_another)
    assert told == ["another thread"] * is_told
    runs[outer](idle)


def test_stopping_an_epoch_where_none_is_under_way_does_nothing():
    engine, ends = Engine(idle), []
    engine.on(Events.EPOCH_COMPLETED(at=1))(lambda state: state.stop_epoch())
    engine.on(Events.ITERATION_COMPLETED(at=5))(lambda state: state.save("unrelated"))
    engine.on(Events.SAVING)(lambda state: None)
    engine.on(Events.EPOCH_COMPLETED)(lambda state: ends.append(state.iteration))
    engine.run("abcd", max_epochs=3)
    assert ends == [4, 8, 12]


@pytest.mark.parametrize("event", [Events.ITERATION_COMPLETED, Events.CLOSED])
def test_a_save_that_nobody_makes_is_told(event, caplog):
    engine = Engine(idle)
    engine.on(event)(lambda state: state.save("please"))
    engine.run("a", max_epochs=1)
    assert "a save was asked for (please)" in caplog.text


def test_a_save_asked_for_while_saving_is_made_at_the_next_commit_point():
    engine, saved = Engine(idle), []
    engine.on(Events.ITERATION_COMPLETED(at=1))(lambda state: state.save("first"))

    @engine.on(Events.SAVING)
    def save(state):
        saved.append((state.iteration, state.control.saves[0][0]))
        if state.iteration == 1:
            state.save("second")

    engine.run("abc", max_epochs=1)
    assert saved == [(1, "first"), (2, "second")]


def test_a_run_cannot_be_carried_on_inside_itself():
    engine = Engine(idle)
    engine.on(Events.ITERATION_COMPLETED(at=1))(lambda state: engine.run("x", state=state))
    with pytest.raises(RuntimeError, match="of a run under way; leave state= out"):
        engine.run("ab", max_epochs=1)


def test_limits_may_be_numpys_numbers():
    numpy = pytest.importorskip("numpy")
    assert Engine(idle).run("ab", max_epochs=numpy.int64(2)).epoch == 2


def test_an_error_that_is_gone_keeps_nothing_alive():
    class Thing:
        pass

    def run():
        thing = Thing()
        engine = Engine(lambda state, batch: thing and 1 / 0)

        @engine.on(Events.FAILED | Events.CLOSED)
        def observe(state):
            raise OSError("disk")

        failed = False
        try:
            engine.run("a", max_epochs=1)
        except ZeroDivisionError:
            failed = True
        assert failed
        return weakref.ref(thing)

    gc.collect()
    gc.disable()
    try:
        assert run()() is None
    finally:
        gc.enable()


@pytest.mark.skipif(sys.platform != "linux", reason="counts the pages that Linux hands out")
def test_a_run_takes_no_memory_from_the_system_however_deep_its_caller_is():
    def at(depth, run):
        return at(depth - 1, run) if depth else run()

    def leaf():
        pass

    def process(state, batch):
        leaf()

    def pages():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        engine.run(range(200), max_epochs=1)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    engine = Engine(process)
    # Two chunks of Python's stack, of 16 KiB each, have so many frames or fewer.
    assert max(at(depth, pages) for depth in range(300)) < 200


def test_of_several_errors_at_the_end_the_first_names_the_others():
    engine = Engine(idle)
    for number in range(3):
        engine.on(Events.CLOSED)(partial(fail_at_the_end, number=number))
    with pytest.raises(OSError, match="0") as raised:
        engine.run("ab", max_epochs=1)
    assert raised.value.__notes__[-2:] == [
        f"then a handler raised OSError({number})" for number in (1, 2)
    ]


def fail_at_the_end(state, number):
    raise OSError(number)
