"""States: memory, and what is saved of a run."""

from dataclasses import dataclass

import pytest

from camshaft import Engine, EventEnum, Events, State
from camshaft.engine.state import RunControl


class Own(EventEnum):
    PING = "ping"


@dataclass
class Tally:
    calls: int = 0


class Counter:
    def attach(self, engine):
        engine.on(Events.ITERATION_COMPLETED)(self.count)

    def count(self, state):
        state.recall(self, Tally).calls += 1


def idle(state, batch):
    return batch


def idle_at_start(state):
    return None


def test_what_a_handler_remembers_belongs_to_the_run():
    counter = Counter()
    engine = Engine(idle, counter)
    first, second = engine.run("abc", max_epochs=1), engine.run("ab", max_epochs=1)
    assert first.memory.saved == {"Counter": Tally(3)}
    assert second.memory.saved == {"Counter": Tally(2)}


def test_two_handlers_of_one_class_remember_apart():
    engine = Engine(idle, Counter(), Counter())
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.stop("pause"))
    assert engine.run("abc", max_epochs=1).memory.saved == {
        "Counter": Tally(2),
        "Counter.2": Tally(2),
    }


def test_what_has_no_place_in_a_checkpoint_is_kept_apart_and_dropped_at_the_end():
    class Opener:
        def attach(self, engine):
            engine.on(Events.STARTED)(lambda state: state.recall(self, list, saved=False))

    engine, during = Engine(idle, Opener()), []
    engine.on(Events.COMPLETED)(lambda state: during.append(dict(state.memory.unsaved)))
    state = engine.run("a", max_epochs=1)
    assert during == [{"Opener": []}]
    assert (state.memory.saved, state.memory.unsaved) == ({}, {})


def test_what_a_handler_remembered_with_other_fields_is_an_error_that_names_it():
    state = State(control=RunControl(engine=Engine(idle, counter := Counter())))
    state.memory.loaded = {"Counter": {"looks": 2}}
    with pytest.raises(ValueError, match="^what Counter remembered does not fit") as caught:
        state.recall(counter, Tally)
    assert "'looks'; fields only in Tally: 'calls'" in str(caught.value)
    assert "Checkpoint(..., override=['Counter'])" in str(caught.value)
    assert (state.memory.saved, state.memory.loaded) == ({}, {"Counter": {"looks": 2}})


def test_a_handler_that_remembers_the_state_itself_is_named():
    state = State(control=RunControl(engine=Engine(idle, counter := Counter())))
    state.recall(counter, lambda: {"last": state})
    with pytest.raises(TypeError, match="^what Counter remembers cannot be saved: it holds the S"):
        state.state_dict()


def test_a_state_says_who_is_attached():
    engine = Engine(idle, Counter(), Counter())
    engine.on(Events.STARTED)(idle_at_start)
    assert State(control=RunControl(engine=engine)).state_dict()["handlers"] == [
        *("Counter", "Counter.2", "idle_at_start")
    ]
    assert engine.has_name("Counter.2.count")
    assert not engine.has_name("Counter.3")


def test_a_state_is_saved_as_plain_values_and_goes_on_from_them():
    def build():
        engine = Engine(lambda state, batch: state.fire(Own.PING), Counter())
        calls = []
        trigger = Own.PING(every=4) | Events.ITERATION_COMPLETED(every=7, once=True)
        engine.on(trigger)(lambda state: calls.append(state.iteration))
        return engine, calls

    whole, expected = build()
    end = whole.run("abcde", max_epochs=3)

    engine, calls = build()
    engine.on(Events.ITERATION_COMPLETED(at=8))(lambda state: state.stop("pause", resumable=True))
    left = engine.run("abcde", max_epochs=3)
    left.metrics["loss"] = 0.5
    saved = left.state_dict()

    other, more = build()
    state = State()
    state.load_state_dict(saved)
    assert state.stop_reason is None
    assert (state.counts[Own.PING], state.counts[Own.PING]) == (8, 8)
    assert state.metrics == {"loss": 0.5}
    other.run("abcde", max_epochs=3, state=state)
    assert calls + more == expected
    assert (state.iteration, state.epoch) == (end.iteration, end.epoch)
    assert state.memory.saved["Counter"] == Tally(15)
    assert state.counts[Own.PING] == 15


def test_a_run_that_a_handler_ended_for_good_stays_ended_when_loaded():
    engine = Engine(idle)
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.stop("converged"))
    saved = engine.run("abc", max_epochs=1).state_dict()
    state = State()
    state.load_state_dict(saved)
    assert (state.stop_reason, state.control.resumable) == ("converged", False)


def test_is_last_batch_is_true_where_it_is_known():
    engine, seen = Engine(idle), []
    engine.on(Events.ITERATION_STARTED)(lambda state: seen.append(state.is_last_batch))
    engine.run("abc", max_epochs=1)
    engine.run(iter("abc"), max_epochs=1)
    engine.run("abc", max_iterations=2)
    assert seen == [*(False, False, True), *(False, False, False), *(False, True)]


def test_what_is_no_event_cannot_be_fired():
    with pytest.raises(TypeError, match=r"state.fire\('hello'\): needs an event of your own"):
        State().fire("hello")
