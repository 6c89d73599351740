"""The state of a run: memories of handlers, the latest metrics, and what is saved."""

import pickle
from dataclasses import dataclass, field
from xml.etree import ElementTree

import pytest
import torch

from camshaft import Engine, EventEnum, Events, State, supervised
from camshaft.engine.state import LatestMetrics, RunControl
from camshaft.engine.state.handler_memory import dump_memory, load_memory


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


def test_a_state_says_who_is_attached():
    engine = Engine(idle, Counter(), Counter())
    engine.on(Events.STARTED)(idle_at_start)
    assert State(control=RunControl(engine=engine)).state_dict()["handlers"] == [
        *("Counter", "Counter.2", "idle_at_start")
    ]
    assert "Counter.2.count" in engine.known
    assert "Counter.3" not in engine.known


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


def test_loaded_counts_are_there_however_they_are_asked_for():
    once = EventEnum("OnceOfThisName", {"PING": "ping"})
    twice = [EventEnum("Twice", {"PONG": "pong"}) for _ in range(2)]  # as cells run again make them
    saved = State(control=RunControl(engine=Engine(idle))).counts
    saved.update({once.PING: 3, Events.SAVING: 2})
    loaded = State(control=RunControl(engine=Engine(idle))).counts
    loaded.load_state_dict({**saved.state_dict(), "Twice.PONG": 4})
    assert list(loaded.items()) == [(once.PING, 3), (Events.SAVING, 2)]
    assert [loaded.get(event, 7) for event in (once.PING, twice[1].PONG)] == [3, 4]
    assert loaded.get(Events.STEP_SKIPPED, 7) == 7
    assert once.PING in loaded
    assert Events.STEP_SKIPPED not in loaded
    assert loaded.state_dict() == {"OnceOfThisName.PING": 3, "Events.SAVING": 2, "Twice.PONG": 4}


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


@dataclass
class Best:
    value: float | None = None
    seen: list[int] = field(default_factory=list)


def test_a_dict_may_gain_and_lose_names_and_a_dataclass_may_not():
    with pytest.raises(
        ValueError, match=r"fields only in the checkpoint: 'when'; fields only in Best: 'seen'$"
    ):
        load_memory(Best(), {"value": 0.1, "when": 3})
    best = Best()
    with pytest.raises(ValueError, match="only in the checkpoint: none; fields only in Best: 's"):
        load_memory(best, {"value": 0.1})
    assert best == Best()
    with pytest.raises(ValueError, match="it was saved as a list, not by fields"):
        load_memory(Best(), [1])


@pytest.mark.parametrize("kind", ["a field", "an entry", "all"])
def test_a_memory_that_holds_the_state_is_refused(kind):
    state = State()
    memory = {"a field": Best(state), "an entry": {"run": state}, "all": state}[kind]
    with pytest.raises(TypeError, match="it holds the State of a run, which holds all memories"):
        dump_memory(memory)


def test_what_cannot_be_saved_is_an_error_that_says_what_can():
    with pytest.raises(TypeError, match="needs to be a dataclass, a dict, or have state_dict"):
        dump_memory([1, 2])


def test_a_metric_that_nothing_produced_is_an_error_that_lists_those_there_are():
    readings = LatestMetrics(loss=1.0, accuracy=0.5)
    with pytest.raises(KeyError, match="no metric 'val/loss' .* there is: 'loss', 'accuracy'"):
        readings["val/loss"]
    with pytest.raises(KeyError, match="none yet"):
        LatestMetrics()["loss"]
    assert readings.get("val/loss") is None


def test_readings_know_what_is_new_however_they_were_written():
    readings = LatestMetrics(loss=1.0)
    seen = readings.writes
    assert readings.since(seen) == {}
    readings["loss"] = 1.0
    readings.update({"lr": 0.1}, accuracy=0.5)
    assert readings.since(seen) == {"loss": 1.0, "lr": 0.1, "accuracy": 0.5}
    readings |= {"late": 1}
    assert readings.since(seen)["late"] == 1
    assert readings.setdefault("first", 3) == 3
    assert readings.since(seen)["first"] == 3


def test_a_metric_that_is_taken_out_is_gone():
    readings = LatestMetrics(loss=1.0)
    assert readings.pop("loss") == 1.0
    assert readings.since(0) == {}


def test_readings_can_be_sent_to_another_process():
    readings = pickle.loads(pickle.dumps(LatestMetrics(loss=1.0)))
    assert readings == {"loss": 1.0}
    assert readings.since(0) == {"loss": 1.0}


def test_a_value_of_an_earlier_iteration_is_not_fresh():
    readings = LatestMetrics(loss=1.0)
    assert readings.fresh("loss") == 1.0
    readings.iteration = 7
    with pytest.raises(LookupError, match="'loss' was last written in iteration 0.* iteration 7"):
        readings.fresh("loss")
    readings["loss"] = 2.0
    assert readings.fresh("loss") == 2.0
    with pytest.raises(KeyError, match="no metric 'val' .* there is: 'loss'"):
        readings.fresh("val")


def test_no_value_is_new_twice_and_an_old_one_only_where_that_is_allowed():
    readings = LatestMetrics(loss=1.0)
    assert readings.is_new("loss", 0)
    looked_at = readings.written("loss")
    assert not readings.is_new("loss", looked_at)
    readings.iteration = 1
    for look in (0, looked_at):
        with pytest.raises(LookupError, match="allow_stale=True"):
            readings.is_new("loss", look)
    assert readings.is_new("loss", 0, allow_stale=True)
    assert not readings.is_new("loss", looked_at, allow_stale=True)
    assert not readings.is_new("val/loss", 0, allow_stale=True)
    with pytest.raises(KeyError, match="there is: 'loss'. If it comes later, .* by the same when="):
        readings.is_new("val/loss", 0)


def test_how_old_a_value_is_is_saved():
    readings = LatestMetrics(loss=1.0)
    readings.iteration = 3
    saved = readings.state_dict()
    again = LatestMetrics()
    again.iteration = 3
    again.load_state_dict(saved)
    with pytest.raises(LookupError):
        again.fresh("loss")


def test_a_metric_keeps_no_graph_so_that_a_running_sum_does_not_grow_in_memory():
    weight = torch.nn.Parameter(torch.tensor(2.0))

    def process(state, batch):
        loss = weight.exp()
        state.metrics["loss"] = loss
        state.metrics["sum"] = state.metrics.setdefault("sum", 0.0) + loss
        state.metrics.update(again=loss)
        state.metrics["weight"] = weight

    metrics = Engine(process).run(range(3), max_epochs=1).metrics
    assert not any(each.requires_grad for each in metrics.values())
    assert metrics["sum"] == 3 * weight.detach().exp()
    assert metrics.fresh("again") == weight.detach().exp()


def aliases(weight, buffer, running):
    """Tensors that change in place after they became a metric, as scripts write them."""
    return {
        "parameter": weight,
        "data": weight.data,
        "detached": weight.detach(),
        "view": weight.view(1)[0],
        "buffer": buffer,
        "slice": running[0],
        "sum": running.sum().add_(0),
    }


def test_a_metric_is_the_value_of_the_moment_in_which_it_was_written():
    weight, buffer = torch.nn.Parameter(torch.tensor(0.0)), torch.zeros(())
    running, expected, kept = torch.zeros(2), [], []

    def process(state, batch):
        state.metrics.update(aliases(weight, buffer, running))
        kept.append({**state.metrics})
        expected.append({name: float(each) for name, each in state.metrics.items()})
        with torch.no_grad():
            weight.add_(1)
        weight.data.add_(1)
        buffer.add_(1)
        running.add_(1)

    metrics = Engine(process).run(range(3), max_epochs=1).metrics
    assert [{name: float(each) for name, each in row.items()} for row in kept] == expected
    assert set(expected[-1].values()) == {2.0, 4.0}
    assert type(metrics["parameter"]) is torch.Tensor


def test_the_loss_of_a_supervised_step_is_no_copy_and_the_parts_of_it_are():
    model, scale = torch.nn.Linear(2, 1), torch.nn.Parameter(torch.tensor(1.0))
    optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1)

    def parts(prediction, target):
        error = (prediction * scale - target).square().mean()
        return error, {"s": s}

    s = torch.ones(())
    engine, seen = supervised(model, optimizer, parts), []

    @engine.on(Events.ITERATION_COMPLETED)
    def look(state):
        assert state.metrics["loss"] is state.output.loss
        s.add_(1)
        seen.append(float(state.metrics["s"]))

    engine.run([(torch.ones(3, 2), torch.zeros(3, 1))] * 3, max_epochs=1)
    assert seen == [1.0, 2.0, 3.0]


def test_in_a_notebook_a_state_is_a_table_of_its_clocks_and_metrics_without_its_tensors():
    def step(state, batch):
        state.metrics.update({"<loss>": torch.tensor(0.123456), "matrix": torch.eye(9), "n": 3})

    state = Engine(step).run([1, 2], max_epochs=2)
    cells = [[cell.text for cell in row] for row in ElementTree.fromstring(state._repr_html_())]
    assert cells == [
        *(["ended", "max_epochs"], ["epoch", "2 of 2"], ["iteration", "4"]),
        *(["metrics['<loss>']", "0.1235"], ["metrics['matrix']", "Tensor of shape (9, 9)"]),
        ["metrics['n']", "3"],
    ]
