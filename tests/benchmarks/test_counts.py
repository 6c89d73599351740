"""The counts behind the figures: calls and imports, which are the same on every machine."""

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from camshaft import Engine, Events, State, supervised
from camshaft.engine.update import Gradients
from camshaft.handlers import (
    EMA,
    Average,
    ClipGradNorm,
    GradNorm,
    LRSchedule,
    NonFiniteGuard,
    TensorBoard,
    Throughput,
)

SUPERVISED_CALLS = 18
"""Python calls of a supervised step beyond forward, loss and the optimizer's own code.

Three of them announce its events: gradients can be discarded before anybody relies on them. Five
are torch's engine and what leads to it and to the step: fewer layers than the public calls.
"""
EVALUATION_CALLS = 17
"""Python calls of a batch of an evaluation beyond forward and loss.

They are the engine's functions and the mean of the loss; what the whole pass has around it is not.
"""
README_MODULES = 163
"""Modules of Camshaft that the imports of the README's script load: each takes CPU at the start."""
FIRING = 2
"""Calls by which a moment finds whom to call, however many there are."""


def calls(run: Callable[[int], object], kind: str = "call") -> float:
    """The Python calls of an iteration, or its "c_call"s: what 100 more iterations add, by 100."""
    *_, shorter, longer = (count(run, length, kind) for length in (100, 100, 100, 200))
    return (longer - shorter) / 100  # the first runs filled caches


def count(run: Callable[[int], object], iterations: int, kind: str) -> int:
    """All calls of a run."""
    kinds: list[str] = []
    previous = sys.getprofile()
    gc.disable()  # what a collection calls is nobody's doing here
    sys.setprofile(lambda frame, event, argument: kinds.append(event))
    try:
        run(iterations)
    finally:
        sys.setprofile(previous)
        gc.enable()
    return kinds.count(kind)


def run_empty(handlers: int = 0, when: Any = Events.ITERATION_COMPLETED) -> Callable[[int], object]:
    engine: Engine[int, None] = Engine(lambda state, batch: None)
    for _ in range(handlers):
        engine.on(when)(lambda state: None)
    return lambda iterations: engine.run(range(iterations), max_epochs=1)


class Dispatched(TorchDispatchMode):
    """Counts the operations that reach a device, as launches on a GPU do."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.namespace == "aten"
        return function(*args, **(kwargs or {}))


def test_a_step_with_everything_on_has_the_operations_of_the_loop_by_hand(tmp_path):
    batches = [(torch.randn(16, 8), torch.randint(0, 4, (16,))) for _ in range(20)]

    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)

    by_hand, own, total = list[int](), list[int](), torch.zeros(())
    model, optimizer, schedule = make()
    average = [each.detach().clone() for each in model.parameters()]
    with Dispatched() as dispatched:
        for inputs, classes in batches:
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), classes)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if (norm + loss.detach()).isfinite():
                optimizer.step()
            schedule.step()
            torch._foreach_lerp_(average, [*model.parameters()], 0.01)
            total += loss.detach()
            by_hand.append(dispatched.count)

    model, optimizer, schedule = make()
    engine = supervised(model, optimizer, cross_entropy)
    engine.add(ClipGradNorm(1.0), LRSchedule(schedule), EMA(0.99), NonFiniteGuard("skip"))
    engine.add(Average("loss"), Throughput(), TensorBoard(tmp_path))
    with Dispatched() as dispatched:
        engine.on(Events.ITERATION_COMPLETED)(lambda state: own.append(dispatched.count))
        engine.run(batches, max_epochs=1)
    assert own[15] - own[14] <= by_hand[15] - by_hand[14]


def test_an_iteration_without_handlers_is_one_call_of_the_process_function():
    assert calls(run_empty()) == 1
    assert calls(run_empty(), "c_call") == 0


@pytest.mark.parametrize("event", [Events.ITERATION_STARTED, Events.ITERATION_COMPLETED])
def test_a_hundred_handlers_that_do_not_fire_add_no_call(event: Events):
    assert calls(run_empty(100, event(every=10**9))) == 1
    assert calls(run_empty(100, event(every=10**9)), "c_call") == 0


IDLE: list[dict[str, Any]] = [
    {"every": 10**9},
    {"every": 10**9, "where": bool},
    {"every": 10**9, "seconds": 1.0},
    {"seconds": 10.0**7},
    {"at": 1, "where": bool},
    {"where": bool, "once": True},
]
"""Conditions of handlers that are not called, or not a second time."""


@pytest.mark.parametrize("conditions", IDLE, ids="-".join)
def test_a_handler_that_waits_is_not_asked_in_each_iteration(conditions: dict[str, Any]):
    for event in (Events.ITERATION_STARTED, Events.ITERATION_COMPLETED):
        assert calls(run_empty(100, event(**conditions))) == 1


@pytest.mark.soak
@pytest.mark.parametrize("conditions", IDLE, ids="-".join)
def test_ten_thousand_handlers_that_wait_add_no_call(conditions: dict[str, Any]):
    assert calls(run_empty(10_000, Events.ITERATION_COMPLETED(**conditions))) == 1
    assert calls(run_empty(10_000, Events.ITERATION_COMPLETED(**conditions)), "c_call") == 0


@pytest.mark.slow
def test_handlers_that_wait_for_another_event_add_no_call_to_a_step():
    def step(handlers: int) -> Callable[[int], object]:
        model = torch.nn.Linear(4, 2)
        engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.01), cross_entropy)
        for event in Events:
            for _ in range(handlers):
                engine.on(event(every=10**9))(lambda state: None)
        batch = (torch.randn(8, 4), torch.randint(0, 2, (8,)))
        return lambda iterations: engine.run([batch] * iterations, max_epochs=1)

    assert calls(step(20)) == calls(step(1))


@dataclass(eq=False)
class Waits:
    """A handler with settings and a method."""

    number: int

    def attach(self, engine: Engine[Any, Any]) -> None:
        engine.on(Events.ITERATION_COMPLETED(every=10**9))(self.act)

    def act(self, state: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize("kind", ["call", "c_call"])
@pytest.mark.parametrize("what", ["functions", "handlers"])
def test_a_handler_costs_the_same_to_attach_and_to_build_in_however_many_there_are(
    kind: str, what: str
):
    def attach_and_run(number: int) -> None:
        engine: Engine[int, None] = Engine(lambda state, batch: None)
        for each in range(number):
            if what == "handlers":
                engine.add(Waits(each))
            else:
                engine.on(Events.ITERATION_COMPLETED(every=10**9))(lambda state: None)
        engine.run([1], max_epochs=1)

    _, few, more, most = (count(attach_and_run, number, kind) for number in (1, 100, 200, 300))
    assert most - more == more - few


def test_a_handler_that_fires_adds_its_own_call_and_no_other():
    assert calls(run_empty(1)) == 1 + FIRING + 1
    assert calls(run_empty(100)) == 1 + FIRING + 100
    assert calls(run_empty(100), "c_call") == 0


def test_every_1_costs_no_more_than_the_event_itself():
    every = Events.ITERATION_COMPLETED(every=1)
    assert calls(run_empty(100, every)) == calls(run_empty(100))
    assert calls(run_empty(100, every), "c_call") == 0


def test_a_supervised_step_adds_few_calls_to_those_of_torch():
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parameters = list(model.parameters())
    batch = (torch.randn(8, 4), torch.randint(0, 2, (8,)))
    engine = supervised(model, optimizer, cross_entropy)

    def raw(iterations: int) -> None:
        inputs, targets = batch
        for _ in range(iterations):
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            for parameter in parameters:
                parameter.grad = None

    def least(iterations: int) -> None:
        """Forward and loss, and what is inside of torch's own wrapper around the step."""
        inputs, targets = batch
        for _ in range(iterations):
            cross_entropy(model(inputs), targets)
            type(optimizer).step.__wrapped__(optimizer)  # type: ignore[attr-defined]

    def ours(iterations: int) -> None:
        engine.run([batch] * iterations, max_epochs=1)

    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    beyond = calls(ours) - calls(least)
    assert beyond <= SUPERVISED_CALLS
    assert calls(ours) < calls(raw)


def test_a_batch_of_an_evaluation_adds_few_calls_to_forward_and_loss():
    model = torch.nn.Linear(4, 2)
    batch = (torch.randn(8, 4), torch.randint(0, 2, (8,)))
    engine = supervised(model, None, cross_entropy)

    def least(iterations: int) -> None:
        for _ in range(iterations):
            cross_entropy(model(batch[0]), batch[1])

    def ours(iterations: int) -> None:
        engine.evaluate([batch] * iterations)

    assert calls(ours) - calls(least) <= EVALUATION_CALLS


@pytest.mark.parametrize(
    ("handler", "most"), [(EMA(0.9), 31), (Throughput(when=Events.EPOCH_COMPLETED), 14)]
)
def test_an_average_and_the_pace_add_few_calls_to_a_step(handler: Any, most: int):
    model, batch = torch.nn.Linear(4, 2), (torch.randn(8, 4), torch.randint(0, 2, (8,)))

    def steps(*handlers: Any) -> Callable[[int], object]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = supervised(model, optimizer, cross_entropy).add(*handlers)
        return lambda iterations: engine.run([batch] * iterations, max_epochs=1)

    assert round(calls(steps(handler)) - calls(steps())) <= most


@pytest.mark.parametrize("handler", [ClipGradNorm(1.0), GradNorm()])
@pytest.mark.parametrize("kind", ["call", "c_call"])
def test_a_hundred_parameters_are_clipped_by_as_many_calls_as_ten(handler: Any, kind: str):
    def of(number: int) -> float:
        parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(number)]
        for parameter in parameters:
            parameter.grad = torch.ones(2)
        state: State[Any, Any] = State()
        gradients = Gradients(torch.optim.SGD(parameters, lr=0.1))
        state.step_under_way.gradients = gradients
        act = handler.clip if isinstance(handler, ClipGradNorm) else handler.measure

        def steps(iterations: int) -> None:
            for _ in range(iterations):
                gradients.norms.clear()  # as each step does
                act(state)

        return calls(steps, kind)

    assert of(10) == of(100)


@pytest.mark.slow
def test_the_import_loads_no_library_and_a_run_of_one_process_two_beside_torch(processes, tmp_path):
    script = """
        import sys

        def loaded():
            return {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names

        before = loaded()
        import camshaft, camshaft.handlers
        print(*loaded() - before)

        import torch
        loss_fn = torch.nn.functional.mse_loss
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        data = torch.utils.data.DataLoader([(torch.ones(4), torch.ones(1))] * 4)
        for x, y in data:
            loss_fn(model(x), y).backward()
            optimizer.step()  # imports what torch needs
        before = loaded()
        from camshaft import supervised
        from camshaft.handlers import Checkpoint, ClipGradNorm, JSONLines, LRSchedule, Validate
        from camshaft.handlers.schedules import cosine
        engine = supervised(model, optimizer, loss_fn).add(ClipGradNorm(1.0), LRSchedule(cosine()))
        engine.add(Validate(data), JSONLines("rows.jsonl"), Checkpoint("run", resume=True))
        engine.run(data, max_epochs=2)
        print(*sorted(loaded() - before))
    """
    result = processes.run(script, cwd=tmp_path, fresh=True)
    assert result.stdout.splitlines() == ["camshaft", "blinker safetensors"]


@pytest.mark.slow
def test_the_handlers_of_the_readme_import_few_files_and_none_that_only_a_run_needs(processes):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    block = readme.partition("```python\n")[2].partition("torch.manual_seed")[0]
    script = f"{block}\nimport sys\nprint(*(n for n in sys.modules if n.startswith('camshaft')))"
    loaded = processes.run(script, fresh=True).stdout.split()
    trackers = "camshaft.handlers.bridges.trackers"
    assert [name for name in loaded if trackers in name] == [trackers, f"{trackers}.tensorboard"]
    assert not [name for name in loaded if name.endswith(".delivery")]
    assert len(loaded) <= README_MODULES
