"""The memory of functions: of the process function, and of those attached by `on`."""

import random
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from camshaft import Engine, Events, State
from camshaft.engine.state import RunControl
from camshaft.handlers import Checkpoint, latest


@dataclass
class Sum:
    total: int = 0
    seen: list[int] = field(default_factory=list)


def add(state, batch):
    memory = state.recall(add, Sum)
    memory.total += batch
    memory.seen.append(batch)
    return memory.total


class Adder:
    """Adds by a method, by being called, and with a decorator that its author has forgotten."""

    def step(self, state, batch):
        return self.note(state, self.step, batch)

    def __call__(self, state, batch):
        return self.note(state, self, batch)

    def note(self, state, owner, batch):
        memory = state.recall(owner, Sum)
        memory.total += batch
        return memory.total


def scaled(scale, state, batch):
    memory = state.recall(scaled, Sum)
    memory.total += scale * batch
    return memory.total


def decorated(function):
    @wraps(function)
    def call(*arguments):
        return function(*arguments)

    return call


def inner(state, batch):
    memory = state.recall(inner, Sum)
    memory.total += batch
    return memory.total


@pytest.mark.parametrize(
    "make",
    [
        lambda: add,
        lambda: Adder().step,
        Adder,
        lambda: partial(scaled, 1),
        lambda: partial(partial(scaled), 1),
        lambda: partial(Adder().step),
        lambda: decorated(inner),
    ],
    ids=["function", "method", "object", "partial", "partials", "method's partial", "decorated"],
)
def test_a_process_function_of_any_kind_remembers_and_goes_on_from_it(make, tmp_path):
    def run(**limits):
        engine = Engine(make(), Checkpoint(tmp_path, keep=latest(1), resume=True))
        return engine.run([1, 2, 4, 8], **limits)

    assert run(max_iterations=3).output == 7
    state = run(max_epochs=2)
    assert state.output == 30
    assert state.memory.saved["engine.process"].total == 30


def test_functions_attached_by_on_remember_too_each_its_own(tmp_path):
    def run(**limits):
        engine = Engine(lambda state, batch: batch, Checkpoint(tmp_path, resume=True))

        @engine.on(Events.ITERATION_COMPLETED(where=lambda state: state.output > 1))
        def large(state):
            state.recall(large, Sum).total += state.output

        @engine.on(Events.ITERATION_STARTED | Events.EPOCH_COMPLETED)
        def report(state):
            state.recall(report, Sum).seen.append(state.iteration)

        def make(by):
            def count(state):
                state.recall(count, Sum).total += by

            return count

        for by in (1, 100):
            engine.on(Events.EPOCH_COMPLETED)(make(by))
        return engine.run([1, 2, 4], **limits)

    run(max_iterations=2)
    memories = run(max_epochs=2).memory.saved
    assert memories["large()"].total == 12
    assert memories["report()"].seen == [1, 2, 3, 3, 4, 5, 6, 6]
    assert (memories["count()"].total, memories["count.2()"].total) == (2, 200)


class Count:
    """A handler that is saved as objects are in other libraries."""

    def __init__(self, restarts=False):
        self.seen, self.restarts = [], restarts

    def attach(self, engine):
        if self.restarts:
            engine.on(Events.STARTED)(lambda state: self.seen.clear())
        engine.on(Events.ITERATION_COMPLETED)(lambda state: self.seen.append(state.batch))

    def state_dict(self):
        return {"seen": list(self.seen)}

    def load_state_dict(self, saved):
        self.seen = list(saved["seen"])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_handler_with_a_state_of_its_own_is_saved_and_put_back(tmp_path, restarts):
    def run(*limits):
        for limit in limits:
            count = Count(restarts)
            saves = Checkpoint(tmp_path / str(limits), resume=True)
            engine = Engine(lambda state, batch: None, count, Count(), saves)
            engine.run(range(4), max_iterations=limit)
        return count.seen

    assert run(6, 9) == run(9) == [0, 1, 2, 3, 0, 1, 2, 3, 0]


def test_a_function_attached_twice_has_one_memory():
    engine = Engine(lambda state, batch: None)

    def count(state):
        state.recall(count, Sum).total += 1

    engine.on(Events.ITERATION_STARTED)(count)
    engine.on(Events.ITERATION_COMPLETED(every=2))(count)
    assert engine.run(range(4), max_epochs=1).memory.saved == {"count()": Sum(6)}


def test_another_function_may_read_what_the_process_function_remembers():
    engine, seen = Engine(add), []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: seen.append(state.recall(add, Sum).total))
    engine.run([1, 2], max_epochs=2)
    assert seen == [3, 6]


def evaluated(state, batch):
    return add(state, batch)


@pytest.mark.parametrize("evaluate", [None, evaluated])
def test_an_evaluation_inside_a_run_has_a_memory_of_its_own(evaluate):
    engine, found = Engine(add, evaluate=evaluate), []

    @engine.on(Events.ITERATION_COMPLETED)
    def validate(state):
        found.append(engine.evaluate([10, 20], parent=state).output)

    state = engine.run([1, 2, 4], max_epochs=1)
    assert found == [30, 30, 30]
    assert state.memory.saved["engine.process"] == Sum(7, [1, 2, 4])


def test_an_evaluations_own_function_remembers_within_one_evaluation():
    def evaluate(state, batch):
        memory = state.recall(evaluate, Sum)
        memory.total += batch
        return memory.total

    engine = Engine(add, evaluate=evaluate)
    assert [engine.evaluate([1, 2]).output for _ in range(2)] == [3, 3]


@dataclass
class Hidden:
    state: tuple[Tensor, Tensor] | None = None


def recurrent(*handlers, detach=True):
    torch.manual_seed(0)
    model = nn.LSTM(2, 3)

    def step(state, batch):
        memory = state.recall(step, Hidden)
        output, hidden = model(batch, memory.state)
        memory.state = tuple(each.detach() for each in hidden) if detach else hidden
        return output

    return Engine(step, *handlers, objects={"model": model})


def test_a_hidden_state_is_put_back_bit_for_bit(tmp_path):
    torch.manual_seed(1)
    batches = list(torch.randn(7, 2, 4, 2))
    whole = recurrent().run(batches, max_epochs=1).memory.saved["engine.process"]
    for stop in (1, 4):
        checkpoint = Checkpoint(tmp_path / f"{stop}", resume=True)
        recurrent(checkpoint).run(batches, max_iterations=stop)
        checkpoint = Checkpoint(tmp_path / f"{stop}", resume=True)
        memory = recurrent(checkpoint).run(batches, max_epochs=1).memory.saved["engine.process"]
        assert type(memory.state) is tuple
        assert all(map(torch.equal, memory.state, whole.state))


def test_a_memory_with_a_graph_is_refused_when_it_is_saved(tmp_path):
    engine = recurrent(Checkpoint(tmp_path), detach=False)
    with pytest.raises(TypeError, match="what engine.process remembers cannot be saved") as caught:
        engine.run(torch.randn(2, 2, 4, 2), max_epochs=1)
    assert "the tensor 'state.0' requires a gradient" in str(caught.value)
    assert ".detach()" in str(caught.value)


def put_back(saved, devices, module_device):
    """What a new process recalls of a memory whose tensors were on these devices."""
    model = nn.Linear(2, 2, device=module_device)
    objects = {"loss": torch.nn.MSELoss(), "model": model}
    state = State(
        control=RunControl(engine=Engine(step := lambda state, batch: None, objects=objects))
    )
    state.memory.load_state_dict({"engine.process": saved}, {"engine.process": devices})
    return state.recall(step, dict[str, Any]), state.state_dict()["devices"]


def test_tensors_inside_lists_and_dicts_go_back_too():
    one = torch.ones(1)
    saved = {"by_name": OrderedDict(a=[one, one], b=one, c=one)}
    found, _ = put_back(saved, {"by_name.a.0": "meta", "by_name.b": "meta"}, "meta")
    again = found["by_name"]
    assert type(again) is OrderedDict
    assert [each.device.type for each in (*again["a"], again["b"], again["c"])] == [
        *("meta", "cpu", "meta", "cpu")
    ]


def test_metrics_go_back_to_their_device_too():
    engine = Engine(lambda state, batch: None, objects={"model": nn.Linear(2, 2, device="meta")})
    state = State(control=RunControl(engine=engine))
    state.metrics.update(loss=torch.ones(2, device="meta"), rate=torch.ones(1))
    saved = state.state_dict()
    assert saved["metric_devices"] == {"loss": "meta"}
    saved["metrics"]["values"]["loss"] = torch.ones(2)
    again = State(control=RunControl(engine=engine))
    again.load_state_dict(saved)
    assert [each.device.type for each in again.metrics.values()] == ["meta", "cpu"]


@pytest.mark.parametrize(
    ("devices", "module_device", "expected"),
    [
        ({"state.1": "meta"}, "meta", ["cpu", "meta"]),
        ({"state.1": "meta:3"}, "meta", ["cpu", "meta"]),
        ({"state.0": "cuda:0"}, "cpu", ["cpu", "cpu"]),
    ],
)
def test_tensors_go_back_to_the_device_of_the_model_and_those_of_the_host_stay(
    devices, module_device, expected
):
    found, now = put_back({"state": (torch.ones(2), torch.ones(2))}, devices, module_device)
    assert [each.device.type for each in found["state"]] == expected
    assert now.get("engine.process", {}).keys() == (devices.keys() if "meta" in expected else set())


@pytest.mark.gpu
def test_a_hidden_state_on_a_gpu_is_there_again_after_a_resume(tmp_path):
    batches = list(torch.randn(4, 2, 4, 2, device="cuda"))

    def run(**limits):
        engine = recurrent(Checkpoint(tmp_path, resume=True))
        engine.objects["model"].cuda()
        return engine.run(batches, **limits).memory.saved["engine.process"].state

    run(max_iterations=2)
    assert [each.device for each in run(max_epochs=1)] == [batches[0].device] * 2


def test_what_make_draws_is_not_drawn_again_after_a_resume(tmp_path):
    @dataclass
    class Start:
        hidden: Tensor = field(default_factory=lambda: torch.randn(2))
        other: float = field(default_factory=random.random)

    def step(state, batch):
        state.recall(step, Start)
        return torch.rand(()).item() + random.random()

    def run(directory, **limits):
        engine = Engine(step, Checkpoint(directory, resume=True))
        return engine.run(range(3), **limits)

    torch.manual_seed(5)
    random.seed(5)
    whole = run(tmp_path / "whole", max_epochs=1)
    torch.manual_seed(5)
    random.seed(5)
    run(tmp_path / "parts", max_iterations=2)
    resumed = run(tmp_path / "parts", max_epochs=1)
    assert resumed.output == whole.output
    ours, theirs = (each.memory.saved["engine.process"] for each in (resumed, whole))
    assert torch.equal(ours.hidden, theirs.hidden)
    assert ours.other == theirs.other


def test_who_is_not_attached_is_told_who_can_remember():
    def step(state, batch):
        state.recall(Adder().step, Sum)

    with pytest.raises(ValueError, match="is not attached to this engine.* process function"):
        Engine(step).run([1], max_epochs=1)


def test_a_second_memory_of_the_same_function_is_refused():
    def step(state, batch):
        state.recall(step, Sum)
        state.recall(step, Hidden)

    with pytest.raises(TypeError, match=r"engine.process remembers a Sum .* not a Hidden"):
        Engine(step).run([1], max_epochs=1)


def test_a_memory_that_is_not_found_after_the_run_is_an_error_and_not_a_new_memory():
    def count(state, batch):
        state.recall(count, Sum).total += batch

    state = Engine(count).run([1, 2], max_epochs=1)
    with pytest.raises(RuntimeError, match=r"\['engine.process'\]. Recall it in a handler"):
        state.recall(count, Sum)


def test_a_function_can_be_tried_with_a_state_made_by_hand():
    state = State()
    assert [add(state, 1), add(state, 2), inner(state, 5)] == [1, 3, 5]


def test_a_memory_that_the_script_no_longer_recalls_stays_in_the_checkpoints(tmp_path):
    def run(process, **limits):
        return Engine(process, Checkpoint(tmp_path, resume=True)).run([1, 2], **limits)

    run(add, max_epochs=1)
    run(lambda state, batch: None, max_epochs=2)
    assert run(add, max_epochs=3).output == 6


def test_a_memory_whose_function_is_gone_is_an_error_that_names_it(tmp_path):
    def run(attach, override=(), **limits):
        def report(state):
            state.recall(report, Sum).total += 1

        checkpoint = Checkpoint(tmp_path, resume=True, override=list(override))
        engine = Engine(lambda state, batch: None, checkpoint)
        if attach:
            engine.on(Events.ITERATION_COMPLETED)(report)
        return engine.run([1, 2], **limits)

    run(True, max_epochs=1)
    with pytest.raises(
        ValueError, match=r"handlers only in the checkpoint: 'report\(\)'"
    ) as caught:
        run(False, max_epochs=2)
    assert "override=['report()']" in str(caught.value)
    run(False, ["report()"], max_epochs=2)


def test_a_memory_begins_anew_where_reset_names_it(tmp_path):
    def run(reset=(), **limits):
        checkpoint = Checkpoint(tmp_path, resume=True, reset=list(reset))
        return Engine(add, checkpoint).run([1, 2], **limits)

    run(max_epochs=1)
    assert run(["engine.process"], max_epochs=2).output == 3


def reading(state, batch):
    return state.hidden


def writing(state, batch):
    state.hidden = batch


@pytest.mark.parametrize("process", [reading, writing])
def test_an_attribute_of_ones_own_on_the_state_is_refused_with_what_to_use(process):
    with pytest.raises(AttributeError, match="no attribute 'hidden'") as caught:
        Engine(process).run([1], max_epochs=1)
    place, advice = caught.value.__notes__
    assert place == f"in the process function {process.__name__}, epoch 1, iteration 1"
    assert "state.recall(train_step, Memory).hidden" in advice
    assert "state.metrics['hidden']" in advice


def test_the_advice_is_given_in_handlers_too_and_for_nothing_but_states():
    engine = Engine(lambda state, batch: None)
    engine.on(Events.ITERATION_COMPLETED)(lambda state: setattr(state, "count", 1))
    with pytest.raises(AttributeError) as caught:
        engine.run([1], max_epochs=1)
    assert "recall" in caught.value.__notes__[-1]
    with pytest.raises(AttributeError) as caught:
        Engine(lambda state, batch: batch.hidden).run([1], max_epochs=1)
    assert len(caught.value.__notes__) == 1
