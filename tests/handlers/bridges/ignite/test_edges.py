"""Handlers of ignite where a run of Camshaft is other than one of ignite's."""

import pytest
import torch
from ignite.engine import Events
from ignite.handlers import BasicTimeProfiler
from ignite.metrics import Accuracy, Average

from camshaft import Engine, Update
from camshaft.handlers import FromIgnite, NonFiniteGuard

from .sides import BATCHES, ByCamshaft, ByIgnite, batches, both


def test_a_profiler_that_needs_epochs_says_so_before_a_run_by_steps():
    side, profiler = ByCamshaft(), BasicTimeProfiler()
    profiler.attach(side.trainer)
    with pytest.raises(ValueError, match=r"BasicTimeProfiler .* no max_epochs: pass engine.run"):
        side.engine.run(batches(), max_steps=4)
    side.engine.run(batches(), max_steps=4, max_epochs=1)
    assert (profiler.processing_times > 0).sum() == 4


def test_an_epoch_ended_by_a_handler_ends_at_the_same_iteration():
    def attach(side):
        seen = []

        @side.trainer.on(Events.ITERATION_COMPLETED(once=2))
        def leave(engine):
            engine.terminate_epoch()

        @side.trainer.on(Events.EPOCH_COMPLETED)
        def note(engine):
            seen.append((engine.state.epoch, engine.state.iteration))

        return seen

    (one, other), _ = both(attach)
    assert one == other == [(1, 2), (2, 2 + BATCHES), (3, 2 + 2 * BATCHES)]


def test_an_epoch_may_end_without_its_last_event_and_later_ones_have_theirs():
    def attach(side):
        seen = []
        end = Events.ITERATION_COMPLETED(once=2)
        side.trainer.on(end)(lambda engine: engine.terminate_epoch(skip_epoch_completed=True))
        side.trainer.on(Events.EPOCH_COMPLETED)(lambda engine: seen.append(engine.state.epoch))
        return seen

    (one, other), _ = both(attach)
    assert one == other == [2, 3]


def test_an_evaluation_that_a_handler_runs_gives_the_same():
    def attach(side):
        Accuracy().attach(side.evaluator, "accuracy")
        seen = []

        @side.trainer.on(Events.EPOCH_COMPLETED)
        def evaluate(engine):
            seen.append(side.evaluator.run(batches(9)).metrics["accuracy"])
            seen.append(engine.state.iteration)

        return seen

    (one, other), sides = both(attach)
    assert one == other
    assert isinstance(sides[0], ByIgnite)
    assert one[1::2] == [BATCHES, 2 * BATCHES, 3 * BATCHES]


def test_a_batch_whose_step_was_skipped_is_left_out_of_metrics():
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    update = Update(optimizer)

    def process(state, x):
        loss = model(torch.tensor([x])).sum()
        update(state, loss)
        return x

    engine = Engine(
        process, NonFiniteGuard("skip"), objects={"model": model, "optimizer": optimizer}
    )
    engine.add(FromIgnite(Average(), "mean"))
    state = engine.run([1.0, float("nan"), 3.0], max_epochs=1)
    assert (state.step, state.metrics["mean"]) == (2, 2.0)
