"""Handlers of ignite give on Camshaft's engine what they give on ignite's, to the last bit."""

import pytest
import torch
from ignite.engine import Events
from ignite.handlers import BasicTimeProfiler, EarlyStopping, HandlersTimeProfiler
from ignite.metrics import Accuracy

from camshaft.handlers import FromIgnite, Validate

from .sides import (
    BATCHES,
    EPOCHS,
    ByCamshaft,
    ByIgnite,
    Everything,
    batches,
    both,
    found_rates,
    read_events,
    same,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What a run leaves on either side with everything attached."""
    folders = iter([tmp_path_factory.mktemp("ignite"), tmp_path_factory.mktemp("camshaft")])
    given, _ = both(lambda side: Everything(side, next(folders)))
    return [each.results() for each in given]


@pytest.mark.parametrize(
    "name",
    ["weights", "metrics", "rates", "average", "stopping", "console", "saver", "files"],
)
def test_what_handlers_give_and_leave_is_the_same(results, name):
    assert same(results[0][name], results[1][name])


def test_there_is_something_to_compare(results):
    assert len(results[0]["metrics"]) == EPOCHS * (BATCHES + 1)
    assert len(set(results[0]["rates"])) > 10
    assert len(results[0]["files"]) == 2
    assert "Epoch [3/3]: [6/6], running=" in results[0]["console"]


def test_events_come_in_the_same_order_with_the_same_counts():
    def attach(side):
        seen = []
        for event in Events:
            if event.name in ("DATALOADER_STOP_ITERATION", "INTERRUPT", "TERMINATE_SINGLE_EPOCH"):
                continue
            if event.name != "EXCEPTION_RAISED":
                side.trainer.add_event_handler(
                    event,
                    lambda engine, name=event.name: seen.append(
                        (name, engine.state.epoch, engine.state.iteration)
                    ),
                )
        return seen

    (one, other), _ = both(attach, max_epochs=1)
    assert one == other


@pytest.mark.filterwarnings("ignore")  # of ignite's finder
def test_the_learning_rate_finder_finds_the_same_and_puts_weights_back():
    assert found_rates(ByIgnite, batches()) == found_rates(ByCamshaft, batches())


def test_early_stopping_by_a_validation_stops_at_the_same_epoch():
    def attach(side):
        Accuracy().attach(side.evaluator, "accuracy")
        scores = iter([0.1, 0.3, 0.2, 0.2, 0.9])
        stopping = EarlyStopping(2, lambda engine: next(scores), side.trainer)
        side.evaluator.add_event_handler(Events.COMPLETED, stopping)
        side.trainer.add_event_handler(
            Events.EPOCH_COMPLETED, lambda engine: side.evaluate(batches(9))
        )
        ends = []
        side.trainer.add_event_handler(Events.TERMINATE, lambda engine: ends.append("terminate"))
        side.trainer.add_event_handler(Events.COMPLETED, lambda engine: ends.append("completed"))
        return ends

    (one, other), sides = both(attach, max_epochs=9)
    assert one == other == ["terminate", "completed"]
    assert sides[0].trainer.state.epoch == sides[1].state.epoch == 4
    assert sides[1].state.stop_reason == "terminated by a handler of ignite"
    assert same(sides[0].evaluator.state.metrics, dict(sides[1].evaluator.state.metrics))


@pytest.mark.parametrize("profiler", [BasicTimeProfiler, HandlersTimeProfiler])
def test_profilers_measure_each_handler_of_ignite(profiler):
    def attach(side):
        Accuracy().attach(side.trainer, "accuracy")
        timer = profiler()
        timer.attach(side.trainer)
        return timer

    (one, other), _ = both(attach)
    if profiler is BasicTimeProfiler:
        assert one.get_results().keys() == other.get_results().keys()
        assert other.processing_times.shape == (BATCHES * EPOCHS,)
        assert (other.processing_times > 0).all()
        for name in ("ITERATION_COMPLETED", "GET_BATCH_STARTED", "EPOCH_COMPLETED"):
            times = one.event_handlers_times[Events[name]], other.event_handlers_times[Events[name]]
            assert (times[0] > 0).sum() == (times[1] > 0).sum()
    else:
        rows = [[row[:2] for row in each.get_results()[:-1]] for each in (one, other)]
        assert rows[0] == rows[1]


@pytest.mark.slow
def test_tensorboard_has_the_same_scalars_and_histograms_of_weights_and_gradients(tmp_path):
    pytest.importorskip("tensorboard")
    from ignite.handlers.tensorboard_logger import (
        GradsHistHandler,
        TensorboardLogger,
        WeightsHistHandler,
    )

    from camshaft.handlers import StepEvents

    folders = iter([tmp_path / "ignite", tmp_path / "camshaft"])

    def attach(side):
        Accuracy().attach(side.trainer, "accuracy")
        board = TensorboardLogger(log_dir=next(folders))
        board.attach_output_handler(
            side.trainer, Events.EPOCH_COMPLETED, tag="training", metric_names="all"
        )
        board.attach_opt_params_handler(
            side.trainer, Events.ITERATION_STARTED, optimizer=side.optimizer
        )
        board.attach(side.trainer, WeightsHistHandler(side.model), Events.EPOCH_COMPLETED)
        gradients = Events.ITERATION_COMPLETED
        if isinstance(side, ByCamshaft):
            gradients = StepEvents.GRADIENTS_READY
        board.attach(side.trainer, GradsHistHandler(side.model), gradients)
        side.trainer.add_event_handler(Events.COMPLETED, lambda engine: board.close())

    both(attach)
    (scalars, histograms), other = (read_events(tmp_path / n) for n in ("ignite", "camshaft"))
    assert scalars == other[0]
    assert histograms == other[1]
    assert len(scalars["training/accuracy"]) == EPOCHS
    assert any(name.startswith("grads/") for name in histograms)


def test_the_handler_added_by_the_adapter_is_called_with_its_arguments():
    side = ByCamshaft()
    seen = []
    side.engine.add(
        FromIgnite(Accuracy(), "accuracy"),
        FromIgnite(lambda engine, what: seen.append(what), "end", on=Events.COMPLETED),
        Validate(batches(9)),
    )
    side.engine.evaluation.add(FromIgnite(Accuracy(), "accuracy"))
    side.run(batches())
    assert seen == ["end"]
    assert 0 <= side.state.metrics["accuracy"] <= 1
    assert 0 <= side.state.metrics["val/accuracy"] <= 1
    assert "FromIgnite(Accuracy)" in side.engine.handlers


def test_an_event_without_a_handler_is_not_listened_to():
    side = ByCamshaft()
    from camshaft import Events as Ours

    inner = (Ours.ITERATION_STARTED, Ours.ITERATION_COMPLETED, Ours.GRADIENTS_READY)
    assert not any(map(side.engine.has_handlers, inner))
    handle = side.trainer.add_event_handler(Events.ITERATION_COMPLETED, note := (lambda: None))
    assert [side.engine.has_handlers(each) for each in inner] == [False, True, False]
    handle.remove()
    assert note
    assert not any(map(side.engine.has_handlers, inner))


def test_an_event_that_never_comes_and_a_handler_without_one_are_errors_that_name_them():
    side = ByCamshaft()
    with pytest.raises(ValueError, match="test_an_event.*DATALOADER_STOP_ITERATION"):
        side.trainer.add_event_handler(Events.DATALOADER_STOP_ITERATION, lambda: None)
    with pytest.raises(TypeError, match=r"has no attach\(\); say when to call it"):
        FromIgnite(print)
    with pytest.raises(NotImplementedError, match="pass the data to engine.run"):
        side.trainer.set_data([])


def test_an_exception_is_seen_and_still_raised():
    side, seen = ByCamshaft(), []
    side.trainer.add_event_handler(Events.EXCEPTION_RAISED, lambda engine, e: seen.append(e))
    with pytest.raises(ValueError, match="Expected more than 1 value") as raised:
        side.run([(torch.zeros(1, 4), torch.zeros(1, dtype=torch.long))])
    assert seen == [raised.value]
