"""What an engine says it would do."""

import torch

from camshaft import Engine, EventEnum, Events, Stage, supervised
from camshaft.handlers import ClipGradNorm, EarlyStopping, Validate


class Own(EventEnum):
    PING = "ping"


def report(state):
    pass


def test_describe_lists_every_moment_with_handlers_stages_triggers_and_sources():
    engine = Engine(lambda state, batch: None)
    engine.on(Events.EPOCH_COMPLETED(last=True), stage=Stage.REPORT)(report)
    engine.add(Validate([1]), EarlyStopping("val/loss"))
    engine.on(Own.PING(every=2))(report)
    line = report.__code__.co_firstlineno
    lines = {
        name: handler.__code__.co_firstlineno
        for name, handler in {"v": Validate.evaluate, "e": EarlyStopping.look}.items()
    }
    assert engine.describe() == (
        "Events.EPOCH_COMPLETED\n"
        "  MEASURE  Validate(val).evaluate        Events.EPOCH_COMPLETED(last=True)  "
        f"validate.py:{lines['v']}\n"
        "  ACT      EarlyStopping(val/loss).look  Events.EPOCH_COMPLETED             "
        f"early_stopping.py:{lines['e']}\n"
        "  REPORT   report                        Events.EPOCH_COMPLETED(last=True)  "
        f"test_describe.py:{line}\n"
        "Events.COMPLETED\n"
        "  MEASURE  Validate(val).evaluate        Events.EPOCH_COMPLETED(last=True)  "
        f"validate.py:{lines['v']}\n"
        "  REPORT   report                        Events.EPOCH_COMPLETED(last=True)  "
        f"test_describe.py:{line}\n"
        "Own.PING\n"
        "  ACT      report.2                      Own.PING(every=2)                  "
        f"test_describe.py:{line}"
    )


def test_an_engine_without_handlers_says_so():
    assert Engine(lambda state, batch: None).describe() == "no handlers"


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


def test_a_rehearsal_equals_the_trace_of_the_real_run():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss, accumulate=2)
    trace = []

    def attach(name, trigger, stage=Stage.ACT):
        def handler(state):
            trace.append((state.epoch, state.iteration, name))

        handler.__qualname__ = name
        engine.on(trigger, stage=stage)(handler)

    attach("first", Events.ITERATION_COMPLETED(every=3, last=True))
    attach("steps", Events.STEP_COMPLETED(every=2) | Events.EPOCH_STARTED)
    attach("gradients", Events.GRADIENTS_READY)
    attach("report", Events.EPOCH_COMPLETED(every=2) | Events.STARTED, Stage.REPORT)
    attach("measure", Events.EPOCH_COMPLETED(after=1), Stage.MEASURE)
    attach("end", Events.CLOSED | Events.COMPLETED)

    rehearsed = [
        (call.epoch, call.iteration, call.handler)
        for call in engine.simulate(max_epochs=3, epoch_length=5)
        if not call.handler.startswith("Supervised")
    ]
    engine.run([(torch.ones(4, 2), torch.ones(4, 1))] * 5, max_epochs=3)
    assert rehearsed == trace
    assert (1, 5, "gradients") in trace  # the short last window of the epoch


def test_a_process_of_ones_own_can_be_rehearsed_by_the_events_it_fires():
    engine = Engine(lambda state, batch: None)
    engine.on(Own.PING(every=2))(report)
    calls = engine.simulate(
        max_epochs=1, epoch_length=4, process=lambda state, batch: state.fire(Own.PING)
    )
    assert [(call.iteration, call.handler) for call in calls] == [(2, "report"), (4, "report")]


def test_a_rehearsal_takes_predicates_to_be_true_and_leaves_out_seconds():
    engine = Engine(lambda state, batch: None)
    engine.on(Events.EPOCH_COMPLETED(when=lambda state: state.metrics["none"] > 1))(report)
    engine.on(Events.ITERATION_COMPLETED(seconds=1e-9))(lambda state: None)
    assert [call.handler for call in engine.simulate(max_epochs=1, epoch_length=2)] == ["report"]


def test_a_rehearsal_leaves_no_trace_in_the_engine():
    engine = Engine(lambda state, batch: None)
    calls = []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: calls.append(state.epoch))
    engine.simulate(max_epochs=4, epoch_length=1)
    assert engine.run("a", max_epochs=1).epoch == 1
    assert calls == [1]


def test_the_state_of_an_evaluation_engine_is_described_too():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss).add(ClipGradNorm(1.0))
    assert "ClipGradNorm.clip" in engine.describe()
    assert "Supervised.mean_loss" in engine.evaluation.describe()
