"""Wiring an engine, and the order in which it calls."""

import gc
import weakref
from types import SimpleNamespace

import numpy
import pytest
import torch

from camshaft import Engine, EventEnum, Events, Stage, State, on_rank, supervised
from camshaft.handlers import EarlyStopping


class Own(EventEnum):
    PING = "ping"


def idle(state, batch):
    return batch


def trace_of(engine, events):
    """Record every occurrence of these events as (event, epoch, iteration)."""
    trace = []
    for event in events:
        engine.on(event)(
            lambda state, event=event: trace.append((event.name, state.epoch, state.iteration))
        )
    return trace


def test_a_run_announces_its_events_in_the_order_of_the_enum():
    engine = Engine(idle)
    trace = trace_of(engine, Events)
    engine.run([7], max_epochs=1)
    assert [name for name, _, _ in trace] == [
        *("LOADING", "STARTED", "EPOCH_STARTED", "ITERATION_STARTED", "ITERATION_COMPLETED"),
        *("EPOCH_COMPLETED", "COMPLETED", "CLOSED"),
    ]


def test_handlers_see_counters_that_start_at_one():
    engine = Engine(idle)
    trace = trace_of(engine, [Events.EPOCH_STARTED, Events.ITERATION_STARTED])
    engine.run("ab", max_epochs=2)
    assert trace == [
        *(("EPOCH_STARTED", 1, 0), ("ITERATION_STARTED", 1, 1), ("ITERATION_STARTED", 1, 2)),
        *(("EPOCH_STARTED", 2, 2), ("ITERATION_STARTED", 2, 3), ("ITERATION_STARTED", 2, 4)),
    ]


def test_the_state_holds_batch_and_output_of_the_iteration():
    engine = Engine(lambda state, batch: 10 * batch)
    seen = []
    engine.on(Events.ITERATION_STARTED)(lambda state: seen.append((state.batch, state.output)))
    engine.on(Events.ITERATION_COMPLETED)(lambda state: seen.append((state.batch, state.output)))
    engine.run([1, 2], max_epochs=1)
    assert seen == [(1, None), (1, 10), (2, None), (2, 20)]


def test_within_a_moment_stages_come_first_and_then_the_order_of_attachment():
    engine, order = Engine(idle), []
    engine.on(Events.EPOCH_COMPLETED, stage=Stage.REPORT)(lambda state: order.append("report"))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: order.append("first"))
    engine.on(Events.EPOCH_COMPLETED, stage=Stage.MEASURE)(lambda state: order.append("measure"))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: order.append("second"))
    engine.run([1], max_epochs=1)
    assert order == ["measure", "first", "second", "report"]


def test_handlers_that_fire_rarely_keep_their_place_among_those_that_always_do():
    engine, order = Engine(idle), []
    for name, trigger in {
        "a": Events.ITERATION_COMPLETED,
        "b": Events.ITERATION_COMPLETED(every=2),
        "c": Events.ITERATION_COMPLETED,
        "d": Events.ITERATION_COMPLETED(where=lambda state: state.iteration == 2),
        "e": Events.ITERATION_COMPLETED,
    }.items():
        engine.on(trigger)(lambda state, name=name: order.append(name))
    engine.run([1, 2, 3], max_epochs=1)
    assert "".join(order) == "ace" + "abcde" + "ace"


def test_the_decorated_function_stays_what_it_was():
    def report(state):
        return 1

    assert Engine(idle).on(Events.STARTED)(report) is report


def test_a_function_that_is_taken_off_is_called_no_longer():
    engine, calls = Engine(idle), []

    @engine.on(Events.ITERATION_COMPLETED(every=2, last=True) | Events.EPOCH_COMPLETED)
    def report(state):
        calls.append(state.iteration)

    engine.off(report)
    engine.run([1, 2, 3], max_epochs=1)
    assert calls == []


def test_handler_objects_attach_themselves_and_add_returns_the_engine():
    class Counter:
        def attach(self, engine):
            engine.on(Events.ITERATION_COMPLETED)(self.count)

        def count(self, state):
            state.metrics["count"] = state.metrics.get("count", 0) + 1

    engine = Engine(idle)
    assert engine.add(Counter()) is engine
    assert engine.run([1, 2], max_epochs=1).metrics == {"count": 2}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (object(), r"needs an attach\(engine\) method"),
        (Stage, "an object rather than a class"),
        (lambda state: None, "use @engine.on"),
        ([object(), object()], r"write engine.add\(\*handlers\)"),
        ({"model": Stage}, r"write Engine\(process, objects="),
        (SimpleNamespace(optimizer=None, step=print), r"write engine.add\(LRSchedule\(scheduler"),
    ],
)
def test_what_is_no_handler_is_refused(wrong, says):
    with pytest.raises(TypeError, match=says):
        Engine(idle).add(wrong)


def test_another_handler_with_the_same_settings_is_a_warning_with_what_to_do():
    engine = Engine(idle, EarlyStopping("loss"), EarlyStopping("loss", patience=5))
    with pytest.warns(UserWarning, match=r"^EarlyStopping\(loss\) is attached already") as caught:
        engine.add(EarlyStopping("loss"))
    assert "make the engine in that cell" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert len(engine.handlers) == 3


def test_settings_that_have_no_value_are_those_of_one_handler_alone():
    class Weighted:
        def __init__(self, *weights):
            self.weights, self.table = weights, {"a": weights}

        def attach(self, engine):
            pass

    for weights in (torch.ones(2), numpy.ones(2), [1], {"a": 1}):
        Engine(idle, Weighted(weights), Weighted(weights))


def test_the_same_handler_twice_is_refused():
    class Quiet:
        def attach(self, engine):
            pass

    quiet = Quiet()
    with pytest.raises(ValueError, match="Quiet is attached already"):
        Engine(idle, quiet, quiet)
    engine = Engine(idle, quiet, Quiet())
    assert list(engine.handlers) == ["Quiet", "Quiet.2"]


def test_a_handler_of_the_wrong_arity_is_refused_by_name_when_it_is_attached():
    def report(engine, state):
        pass

    with pytest.raises(TypeError, match=r"report\(engine, state\) for Events.STARTED cannot be"):
        Engine(idle).on(Events.STARTED)(report)
    with pytest.raises(TypeError, match="1 positional argument"):
        Engine(idle).on(Events.STARTED)(lambda: None)


def test_a_condition_of_the_wrong_arity_is_refused_when_it_is_attached():
    for where in (lambda: True, lambda state, count: True):
        trigger = Events.ITERATION_COMPLETED(every=1000, where=where)
        with pytest.raises(TypeError, match=r"where= of Events.ITERATION_COMPLETED cannot be cal"):
            Engine(idle).on(trigger)


def test_a_process_function_of_the_wrong_arity_is_refused():
    with pytest.raises(TypeError, match="2 positional arguments"):
        Engine(lambda batch: batch)
    with pytest.raises(TypeError, match="cannot be called"):
        Engine(3)
    with pytest.raises(TypeError, match="got a Linear for its process function, wh"):
        Engine(torch.nn.Linear(1, 1))


def test_a_coroutine_function_is_refused():
    async def report(state):
        pass

    with pytest.raises(TypeError, match="coroutine function; write it with plain def"):
        Engine(idle).on(Events.STARTED)(report)


@pytest.mark.parametrize("event", ["epoch_completed", None, Stage.ACT, 3])
def test_an_unknown_event_is_refused(event):
    with pytest.raises(TypeError, match="needs a member of Events or of a class derived from"):
        Engine(idle).on(event)


def test_an_event_of_ones_own_counts_its_occurrences():
    def process(state, batch):
        state.fire(Own.PING)

    engine, calls = Engine(process), []
    engine.on(Own.PING(every=2))(lambda state: calls.append(state.iteration))
    state = engine.run([1, 2, 3], max_epochs=2)
    assert calls == [2, 4, 6]
    assert state.counts[Own.PING] == 6


def test_an_event_of_the_engines_own_cannot_be_fired_by_others():
    engine = Engine(lambda state, batch: state.fire(Events.EPOCH_COMPLETED))
    with pytest.raises(ValueError, match="is fired by the engine"):
        engine.run([1], max_epochs=1)


def test_who_steps_an_optimizer_alone_fires_step_completed_and_it_counts():
    def process(state, batch):
        state.fire(Events.STEP_COMPLETED)

    engine, calls = Engine(process), []
    engine.on(Events.STEP_COMPLETED(every=3))(lambda state: calls.append(state.step))
    state = engine.run([1] * 10, max_steps=7)
    assert calls == [3, 6]
    assert (state.step, state.iteration, state.stop_reason) == (7, 7, "max_steps")


def test_the_same_engine_runs_inside_its_own_handler():
    engine = Engine(lambda state, batch: batch)
    inner = []

    @engine.on(Events.ITERATION_COMPLETED(at=2))
    def nested(state):
        if state.parent is None:
            inner.append(engine.run("xyz", max_epochs=2, parent=state))

    trace = trace_of(engine, [Events.EPOCH_COMPLETED])
    outer = engine.run("ab", max_epochs=2)
    assert trace == [
        ("EPOCH_COMPLETED", 1, 3),  # the inner run, in the middle of the outer epoch
        ("EPOCH_COMPLETED", 2, 6),
        ("EPOCH_COMPLETED", 1, 2),
        ("EPOCH_COMPLETED", 2, 4),
    ]
    assert (outer.iteration, outer.epoch, outer.output) == (4, 2, "b")
    assert inner[0].parent is outer
    assert (inner[0].iteration, inner[0].output) == (6, "z")


def test_an_engine_that_runs_inside_of_itself_by_mistake_is_told_how_to_validate():
    engine = Engine(idle)
    engine.on(Events.EPOCH_COMPLETED)(lambda state: engine.run([1], max_epochs=1))
    with pytest.raises(RuntimeError, match=r"write engine.evaluate\(loader\), or add Validate"):
        engine.run([1, 2], max_epochs=1)
    engine = Engine(idle)
    engine.on(Events.EPOCH_COMPLETED)(lambda state: Engine(idle).run([1], max_epochs=1))
    assert engine.run([1, 2], max_epochs=1).iteration == 2


def test_the_last_output_and_batch_are_dead_inside_the_next_step():
    class Thing:
        pass

    alive, seen = [], []

    def process(state, batch):
        alive.append([reference() is not None for reference in seen])
        output = Thing()
        seen[:] = [weakref.ref(output), weakref.ref(batch)]
        return output

    gc.disable()
    try:
        Engine(process).run((Thing() for _ in range(4)), max_epochs=1)
    finally:
        gc.enable()
    assert alive == [[], [False, False], [False, False], [False, False]]


def test_deleting_an_engine_frees_model_and_data_without_the_garbage_collector():
    from camshaft.handlers import ClipGradNorm, EarlyStopping, LRSchedule, Metrics, Validate

    class Data(list):
        pass

    def build():
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        data = Data([(torch.ones(3, 2), torch.ones(3, 1))] * 3)
        engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
        engine.add(
            *(ClipGradNorm(1.0), LRSchedule(scheduler), Metrics({}), Validate(data)),
            EarlyStopping("val/loss"),
        )
        state = engine.run(data, max_epochs=2)
        return state, weakref.ref(engine), weakref.ref(data)

    build()  # the first time, torch imports parts of itself and keeps the caller's frame
    gc.collect()
    gc.disable()
    try:
        state, engine, data = build()
        assert state.epoch == 2
        assert engine() is None
        assert data() is None
    finally:
        gc.enable()


def test_a_handler_can_be_tried_on_a_state_made_by_hand():
    state = State(iteration=3)
    state.fire(Own.PING)
    assert state.counts[Own.PING] == 1
    assert state.recall(object(), dict) == {}


def test_a_handler_that_is_not_attached_has_no_memory_in_a_run():
    engine = Engine(lambda state, batch: state.recall(object(), dict))
    with pytest.raises(ValueError, match="is not attached to this engine"):
        engine.run([1], max_epochs=1)


def test_a_handler_that_could_not_attach_can_be_added_again():
    class Picky:
        ready = False

        def attach(self, engine):
            if not self.ready:
                raise ValueError("not yet")

    picky, engine = Picky(), Engine(idle)
    with pytest.raises(ValueError, match="not yet"):
        engine.add(picky)
    picky.ready = True
    assert picky in engine.add(picky).handlers.values()


def test_a_handler_is_named_after_what_it_is_about_whatever_the_order():
    from camshaft.handlers import EarlyStopping

    loss, accuracy = EarlyStopping("loss"), EarlyStopping("accuracy", mode="max")
    names = {Engine(idle, *pair).name_of(loss) for pair in ((loss, accuracy), (accuracy, loss))}
    assert names == {"EarlyStopping(loss)"}


def test_a_stage_that_is_none_and_a_handler_with_a_yield_are_refused():
    with pytest.raises(TypeError, match=r"needs Stage.MEASURE, Stage.ACT or Stage.REPORT"):
        Engine(idle).on(Events.STARTED, stage="report")

    def generate(state):
        yield

    with pytest.raises(TypeError, match="has a yield in it"):
        Engine(idle).on(Events.STARTED)(generate)


def test_off_takes_a_function_off_the_evaluation_too():
    engine, calls = Engine(idle), []

    def report(state):
        calls.append(state.training)

    engine.on(Events.EPOCH_COMPLETED)(report)
    engine.evaluation.on(Events.EPOCH_COMPLETED)(report)
    engine.off(report)
    engine.evaluate("a")
    engine.run("a", max_epochs=1)
    assert calls == []


def test_off_of_what_is_not_attached_is_an_error_that_says_what_it_needs():
    engine = Engine(idle)

    @engine.on(Events.STARTED)
    def report(state): ...

    engine.off(report)
    for other in (report, engine, lambda state: None):
        with pytest.raises(ValueError, match=r"off\(.*\): it is not attached; give the function"):
            engine.off(other)


CELL = """
@engine.on(Events.EPOCH_COMPLETED(where=lambda state: True))
def report(state):
    seen.append("{version}")

for number in range(2):
    @engine.on(Events.EPOCH_COMPLETED)
    def count(state, number=number):
        seen.append(number)

@engine.on(Events.EPOCH_COMPLETED)
def _(state):
    seen.append("_")
"""


def run_cells(*cells, **of_the_module):
    """The calls of an epoch after these cells of a notebook, each with its own file name."""
    seen = []
    engine = Engine(idle)
    namespace = {"__name__": "__main__", "Events": Events, "engine": engine, "seen": seen}
    namespace |= of_the_module
    for cell in cells:
        exec(compile(cell, f"cell {hash(cell)}", "exec"), namespace)
    engine.run([1], max_epochs=1)
    return seen


def test_a_cell_that_is_run_again_replaces_what_it_attached_and_says_so(caplog):
    first, second = CELL.format(version="first"), CELL.format(version="second")
    assert run_cells(first) == ["first", 0, 1, "_"]
    assert caplog.text == ""
    assert run_cells(first, first) == ["first", 0, 1, "_", "_"]
    assert "report on Events.EPOCH_COMPLETED(where=<lambda>) takes the place of" in caplog.text
    assert run_cells(first, second) == ["second", 0, 1, "_", "_"]


def test_two_functions_of_one_name_in_a_cell_are_two_and_an_edit_may_move_them():
    one = "@engine.on(Events.COMPLETED)\ndef report(state): seen.append({})\n"
    assert run_cells(one.format(1) + one.format(2)) == [1, 2]
    assert run_cells(*2 * [one.format(1) + one.format(2)]) == [1, 2]
    assert run_cells(one.format(1), "# edited\n" + one.format(2)) == [2]
    put_back = "engine.on(Events.COMPLETED)(first)"
    assert run_cells(one.format(1) + "first = report", one.format(2), put_back) == [1]


def test_a_replaced_function_keeps_its_place_and_its_name():
    engine = Engine(idle)
    namespace = {"__name__": "__main__", "engine": engine, "Events": Events}
    cells = [f"@engine.on(Events.COMPLETED(last=True))\ndef {name}(state): pass" for name in "aba"]
    for cell in cells:
        exec(cell, namespace)
    rows = [row.handler for row in engine.describe().rows]
    assert rows == engine.attached == ["a", "b"]
    engine.off(namespace["a"])
    assert [row.handler for row in engine.describe().rows] == ["b"]


def test_in_a_script_several_functions_may_have_one_name():
    first, second = CELL.format(version="first"), CELL.format(version="second")
    script = {"__file__": "script.py"}
    twice = ["first", 0, 1, "_", "second", 0, 1, "_"]
    assert run_cells(first, second, **script) == twice
    assert run_cells(first, second, __name__="module") == twice


def test_a_function_attached_twice_to_a_trigger_is_called_once_and_that_is_told():
    called = []
    engine = Engine(idle)
    note = called.append
    engine.on(Events.EPOCH_COMPLETED)(note)
    with pytest.warns(UserWarning, match="append is attached to Events.EPOCH_COMPLETED already"):
        engine.on(Events.EPOCH_COMPLETED)(note)
    engine.on(Events.EPOCH_COMPLETED(every=2))(note)
    engine.on(Events.EPOCH_COMPLETED, stage=Stage.REPORT)(note)
    engine.run([1], max_epochs=2)
    assert len(called) == 2 + 1 + 2


def test_functions_that_a_function_makes_share_a_name_and_are_all_called():
    called = []

    def make(number):
        def note(state):
            called.append(number)

        return note

    engine = Engine(idle)
    for number in range(3):
        engine.on(Events.COMPLETED)(make(number))
        engine.on(Events.COMPLETED)(lambda state: called.append("lambda"))
    engine.run([1], max_epochs=1)
    assert called == [0, "lambda", 1, "lambda", 2, "lambda"]


@pytest.mark.parametrize("rank", [-1, "0", True])
def test_a_handler_for_a_rank_that_cannot_be_is_refused(rank):
    with pytest.raises(ValueError, match=r"needs the number of a rank"):
        on_rank(rank, Idle())


class Idle:
    rank = 8  # such as that of a LoRA

    def attach(self, engine):
        engine.on(Events.STARTED)(lambda state: None)


def test_a_handler_with_a_rank_of_its_own_is_attached_on_every_rank():
    assert [*Engine(lambda state, batch: None, Idle()).handlers] == ["Idle"]
