"""Signals during an evaluation: it is left, and the resumed run makes it again, as if none came."""

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from operator import methodcaller
from queue import SimpleQueue
from signal import SIGINT, SIGTERM

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from camshaft import Engine, Events, Stage, supervised
from camshaft.handlers import (
    Average,
    Checkpoint,
    EarlyStopping,
    JSONLines,
    LRSchedule,
    RestoreBest,
    StopOnSignal,
    Totals,
    Validate,
    best,
    latest,
)
from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.validate import ValidationEvents

INPUTS = torch.arange(24.0).reshape(12, 2) / 24
SAMPLES = TensorDataset(INPUTS, INPUTS[:, :1])
DATA = [(INPUTS[i : i + 2], INPUTS[i : i + 2, :1]) for i in range(0, 12, 2)]
MEASURED = Events.EPOCH_COMPLETED | Events.ITERATION_COMPLETED


def training(directory, *handlers, accumulate=1):
    """An engine whose rows and checkpoints are in the directory."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    engine = supervised(model, optimizer, nn.functional.mse_loss, accumulate=accumulate)
    engine.add(*handlers, JSONLines(directory / "rows", when=MEASURED))
    return engine.add(Checkpoint(directory / "run", keep=latest(9), resume=True))


def outcome(engine, state):
    weights = [each.tolist() for each in engine.objects["model"].parameters()]
    metrics = {name: float(value) for name, value in state.metrics.items()}
    clocks = state.iteration, state.step, state.epoch, state.stop_reason
    return repr((weights, metrics, clocks))


def carried_on(directory, make, kills, data, limits):
    """Run to the end, with SIGTERM in these batches of evaluations, counted over all of them.

    Gives the outcome and the rows; and after how many of these batches, and at which iteration, the
    runs that were killed have left.
    """
    batches, left = SimpleQueue(), []  # of this test, and of no run: a queue is not noted

    def kill(state):
        batches.put(state.iteration)
        if batches.qsize() in kills:
            signal.raise_signal(SIGTERM)

    while True:
        torch.manual_seed(99 if left else 0)  # the draws of a resumed run go on from the saved ones
        engine = make(directory).add(StopOnSignal())
        engine.evaluation.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(kill)
        with suppress(SystemExit):
            state = engine.run(data() if callable(data) else data, **limits)
            return (outcome(engine, state), (directory / "rows").read_text()), left
        saved = checkpoints(directory / "run").latest().manifest
        assert "SIGTERM" in saved.reason
        left.append((batches.qsize(), saved.iteration))


def killed_and_whole(directory, make, kills, data=DATA, **limits):
    """What a run that is killed in these batches and a whole one give; where the first has left."""
    parts, left = carried_on(directory / "parts", make, kills, data, limits)
    return (parts, carried_on(directory / "whole", make, (), data, limits)[0]), left


def check(directory, make, killed_at, data=DATA, max_epochs=3, **limits):
    """Compare, and see that each run ends within the batch at which it was killed."""
    made, left = killed_and_whole(directory, make, killed_at, data, max_epochs=max_epochs, **limits)
    assert made[0] == made[1]
    assert [number for number, _ in left] == list(killed_at)
    return [iteration for _, iteration in left]


def validated(*handlers, when=None, **settings):
    """Makes engines that validate on three batches and act on it."""

    def make(directory):
        when_given = {} if when is None else {"when": when}
        stops = EarlyStopping("val/loss", patience=2, allow_stale=True)
        own = (Validate(DATA[:3], **when_given), RestoreBest("val/loss"), stops)
        return training(directory, *own, *(each() for each in handlers), **settings)

    return make


@pytest.mark.parametrize(
    ("when", "killed_at", "stopped_at"),
    [
        (None, [1], [6]),
        (None, [5, 6], [12, 12]),
        (None, [9], [18]),
        (Events.ITERATION_COMPLETED(every=4), [2, 3], [4, 4]),
        (Events.ITERATION_COMPLETED(every=6), [4], [12]),
        (Events.STARTED | Events.EPOCH_COMPLETED, [2, 8], [0, 6]),
        (Events.EPOCH_STARTED, [1, 4], [0, 0]),
        (Events.EPOCH_STARTED, [5], [6]),
        (Events.EPOCH_COMPLETED(where=lambda state: state.epoch > 1, once=True), [3], [12]),
    ],
    ids=repr,
)
def test_a_validation_is_left_at_once_and_made_again_before_anything_else(
    tmp_path, when, killed_at, stopped_at
):
    assert check(tmp_path, validated(when=when), killed_at) == stopped_at


@pytest.mark.parametrize("limits", [{"max_iterations": 10}, {"max_steps": 10}])
def test_the_validation_at_the_end_of_a_run_that_ends_inside_an_epoch_is_left_too(tmp_path, limits):
    made, left = killed_and_whole(tmp_path, validated(), [5], **limits)
    assert made[0] == made[1]
    assert left == [(5, 10)]


def test_a_batch_that_only_keeps_ranks_in_step_counts_for_nothing_behind_a_validation(tmp_path):
    def data():  # the second of two ranks has no sample of the last batch
        return DataLoader(SAMPLES, sampler=DistributedSampler(range(5), 2, rank=1, shuffle=False))

    make = validated(Totals, when=Events.ITERATION_COMPLETED(every=3))
    assert check(tmp_path, make, [1, 5], data, max_epochs=2) == [3, 6]
    assert '"total/samples": 4.0' in (tmp_path / "parts/rows").read_text()


def test_the_last_validation_of_a_run_is_left_and_its_best_weights_are_restored_later(tmp_path):
    check(tmp_path, validated(), [7, 9, 10], max_iterations=18)


def test_schedules_and_the_best_checkpoint_decide_by_the_value_of_the_evaluation(tmp_path):
    def make(directory):
        engine = training(directory, Validate(DATA[:3]))
        reduce = torch.optim.lr_scheduler.ReduceLROnPlateau
        engine.add(LRSchedule(lambda each: reduce(each, patience=0), metric="val/loss"))
        return engine.add(Checkpoint(directory / "best", keep=best(1, "val/loss")))

    check(tmp_path, make, [2, 5])
    chosen = [
        checkpoints(tmp_path / each / "best").latest().manifest for each in ("parts", "whole")
    ]
    assert chosen[0].iteration == chosen[1].iteration
    assert chosen[0].metrics["val/loss"] == chosen[1].metrics["val/loss"]


@pytest.mark.parametrize("killed_at", [[1], [3], [5], [6], [4, 5]])
def test_of_several_evaluations_in_one_moment_only_the_one_that_was_left_is_made_again(
    tmp_path, killed_at
):
    def make(directory):
        engine = training(directory, Validate(DATA[:2]), Validate(DATA[2:4], name="test"))

        @engine.on(Events.EPOCH_COMPLETED)
        def evaluate(state):
            state.metrics["own"] = state.engine.evaluate(DATA[4:]).metrics["loss"]

        @engine.on(Events.EPOCH_COMPLETED)
        def once(state):
            state.metrics["calls"] = state.metrics.get("calls", 0) + 1

        return engine

    check(tmp_path, make, killed_at, max_epochs=2)


@pytest.mark.parametrize("killed_at", [[1], [3], [4, 5], [6]])
def test_an_evaluation_by_a_handler_of_an_event_inside_the_moment_is_left_with_it(
    tmp_path, killed_at
):
    def make(directory):
        engine = training(directory, Validate(DATA[:2]))
        for name, when in (("before", 1), ("after", 2)):

            @engine.on(ValidationEvents.VALIDATED(every=when))
            def count(state, name=name):
                state.metrics[name] = state.metrics.get(name, 0) + 1

            if name == "before":

                @engine.on(ValidationEvents.VALIDATED)
                def evaluate(state):
                    state.metrics["inner"] = state.engine.evaluate(DATA[2:4]).metrics["loss"]

        return engine

    made, _ = killed_and_whole(tmp_path, make, killed_at, max_epochs=2)
    assert made[0] == made[1]


def test_an_evaluation_inside_of_an_evaluation_is_left_with_it(tmp_path):
    def make(directory):
        engine = training(directory, Validate(DATA[:2]))

        @engine.evaluation.on(Events.EPOCH_COMPLETED)
        def inside(state):
            if state.name == "val":
                found = state.parent.engine.evaluate(DATA[2:4], parent=state)
                state.metrics["inner"] = found.metrics["loss"]

        return engine

    check(tmp_path, make, [4], max_epochs=2)


def test_handlers_after_an_iteration_see_its_batch_and_its_output_again(tmp_path):
    def make(directory):
        when = Events.ITERATION_COMPLETED(every=2)
        engine = training(directory, Validate(DATA[:2], when=when), Average("loss"))

        @engine.on(Events.ITERATION_COMPLETED)
        def look(state):
            output = state.output
            state.metrics["seen"] = state.batch[0].sum() + output.loss + output.prediction.sum()

        return engine

    assert check(tmp_path, make, [2, 5], max_epochs=1) == [2, 4]


def test_random_numbers_go_on_where_they_were(tmp_path):
    def make(directory):
        engine = training(directory)

        @engine.on(Events.EPOCH_COMPLETED, stage=Stage.MEASURE)
        def draw(state):
            state.metrics["drawn"] = torch.rand(()).item()

        engine.add(Validate(DataLoader(SAMPLES, 5, shuffle=True)))

        @engine.on(Events.EPOCH_COMPLETED)
        def draw_again(state):
            state.metrics["again"] = torch.rand(()).item()

        return engine

    check(tmp_path, make, [2, 3], lambda: DataLoader(SAMPLES, 2, shuffle=True))


def test_epochs_of_a_chosen_length_and_epochs_that_end_early_are_completed_once(tmp_path):
    def make(directory):
        engine = training(directory, Validate(DATA[:2]))
        engine.on(Events.ITERATION_COMPLETED(at=6))(lambda state: state.stop_epoch())
        return engine

    loader = lambda: DataLoader(SAMPLES, 2, shuffle=True)  # noqa: E731
    check(tmp_path, make, [2, 3, 6], loader, epoch_length=4)


def test_a_run_that_was_stopped_for_good_still_makes_its_last_evaluation(tmp_path):
    def make(directory):
        engine = training(directory)
        engine.on(Events.EPOCH_COMPLETED(at=2), stage=Stage.MEASURE)(lambda state: state.stop("ok"))
        return engine.add(Validate(DATA[:2]))

    check(tmp_path, make, [3])


def test_a_start_that_was_left_is_still_the_start_of_a_new_run(tmp_path):
    def make(directory):
        engine = training(directory)

        @engine.on(Events.STARTED)
        def evaluate(state):
            if state.is_new:
                state.metrics["first"] = state.engine.evaluate(DATA[:3]).metrics["loss"]

        return engine

    assert check(tmp_path, make, [2, 3], max_epochs=1) == [0, 0]


def test_an_evaluation_inside_of_a_step_is_made_to_its_end(tmp_path, capfd):
    when = Events.STEP_COMPLETED(every=4)
    made, left = killed_and_whole(tmp_path, validated(when=when), [1], max_epochs=2)
    assert made[0] == made[1]
    assert left == [(3, 4)]
    assert "stops after this evaluation, which is inside of a step" in capfd.readouterr().err


def test_an_evaluation_inside_of_an_open_window_is_made_to_its_end(tmp_path):
    make = validated(when=Events.ITERATION_COMPLETED(at=(2, 6)), accumulate=3)
    made, left = killed_and_whole(tmp_path, make, [1, 5], max_epochs=2)
    assert made[0] == made[1]
    assert left == [(3, 3), (5, 6)]


def test_an_evaluation_after_a_batch_that_no_checkpoint_holds_is_made_to_its_end():
    engine = Engine(lambda state, batch: batch, StopOnSignal(exit=False))
    engine.on(Events.ITERATION_COMPLETED(at=1))(lambda state: state.engine.evaluate("abc"))
    engine.evaluation.on(Events.ITERATION_COMPLETED(at=1))(lambda _: signal.raise_signal(SIGTERM))
    ends = []
    engine.evaluation.on(Events.CLOSED)(lambda state: ends.append(state.iteration))
    engine.run([object()] * 3, max_epochs=1)
    engine.run("abc", max_epochs=1)
    assert ends == [3, 1]


def test_a_run_that_returns_goes_on_with_its_state_at_the_evaluation_that_was_left():
    seen, engine = [], Engine(lambda state, batch: None, StopOnSignal(SIGINT, exit=False))

    @engine.on(Events.EPOCH_COMPLETED)
    def evaluate(state):
        seen.append(("evaluates", state.iteration, state.engine.evaluate("xyz").iteration))

    @engine.evaluation.on(Events.ITERATION_COMPLETED(at=2))
    def interrupt(state):
        if not seen:
            seen.append("interrupted")
            signal.raise_signal(SIGINT)

    state = engine.run("ab", max_epochs=2)
    assert (state.stop_reason, state.is_interrupted, seen) == ("SIGINT", True, ["interrupted"])
    engine.run("ab", state=state)
    assert seen[1:] == [("evaluates", 2, 3), ("evaluates", 4, 3)]
    assert (state.epoch, state.stop_reason) == (2, "max_epochs")


def test_an_evaluation_that_is_left_ends_as_an_interrupted_run_and_leaves_no_trace():
    events, modes = [], []
    engine = Engine(lambda state, batch: None, StopOnSignal(exit=False))
    engine.objects["model"] = nn.Linear(1, 1)
    for event in (Events.COMPLETED, Events.FAILED, Events.CLOSED):
        engine.evaluation.on(event)(lambda state, event=event: events.append(event))
        engine.on(event)(lambda state: modes.append(engine.objects["model"].training))
    engine.evaluation.on(Events.ITERATION_COMPLETED)(lambda _: signal.raise_signal(SIGTERM))
    engine.add(Validate("xyz"))
    engine.run("ab", max_epochs=1)
    assert events == [Events.CLOSED]
    assert modes == [True]


def test_evaluations_outside_of_a_run_and_runs_inside_of_one_are_not_left():
    engine, seen = Engine(lambda state, batch: None, StopOnSignal(exit=False)), []
    assert engine.evaluate("abc").iteration == 3
    inner = Engine(lambda state, batch: None, Validate("xyz"))
    inner.evaluation.on(Events.ITERATION_COMPLETED(at=1))(lambda _: signal.raise_signal(SIGTERM))
    inner.evaluation.on(Events.CLOSED)(lambda state: seen.append(state.iteration))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: inner.run("ab", max_epochs=1))
    assert engine.run("ab", max_epochs=3).epoch == 1
    assert seen == [3]


SLOW = """
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, JSONLines, StopOnSignal, Validate

directory, seconds, workers = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
inputs = torch.arange(24.0).reshape(12, 2) / 24
samples = TensorDataset(inputs, inputs[:, :1])
torch.manual_seed(0)
model = nn.Linear(2, 1)
engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss)
engine.add(StopOnSignal(deadline=60), Validate(DataLoader(samples, 1, num_workers=workers)))
engine.add(JSONLines(directory + "/rows", when=Events.EPOCH_COMPLETED))
engine.add(Checkpoint(directory + "/run", resume=True))

@engine.evaluation.on(Events.ITERATION_COMPLETED)
def wait(state):
    print("evaluates", state.iteration, flush=True)
    time.sleep(seconds)

state = engine.run(DataLoader(samples, 2, num_workers=workers), max_epochs=2)
print("loss", state.metrics["val/loss"], model.weight.tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_process_ends_within_two_batches_of_a_long_evaluation(processes, tmp_path, workers):
    with processes.start(SLOW, tmp_path, 0.3, workers) as child:
        assert child.stdout.readline() == "evaluates 1\n"
        child.send_signal(SIGTERM, group=True)
        out, err = child.communicate()
    assert child.returncode == 143, err
    assert out.count("evaluates") <= 1
    assert "SIGTERM: leaves this evaluation, which the resumed run makes again" in err
    assert checkpoints(tmp_path / "run").latest().manifest.iteration == 6
    resumed = processes.run(SLOW, tmp_path, 0, workers).stdout.splitlines()
    (tmp_path / "whole").mkdir()
    whole = processes.run(SLOW, tmp_path / "whole", 0, workers).stdout.splitlines()
    assert resumed == whole
    assert (tmp_path / "rows").read_text() == (tmp_path / "whole/rows").read_text()


OF_RANKS = """
import sys, time
import torch
import torch.distributed as dist
from torch import nn
from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint, EarlyStopping, JSONLines, StopOnSignal, Validate
from camshaft.handlers.preemption import leaving

directory, seconds, way = sys.argv[1], float(sys.argv[2]), sys.argv[3]
leaving.AHEAD, leaving.PERIOD, leaving.PATIENCE = 0.6, 0.2, 1.0
dist.init_process_group("gloo")
torch.manual_seed(0)
inputs = torch.arange(48.0).reshape(24, 2) / 48
data = [(inputs[i : i + 2], inputs[i : i + 2, :1]) for i in range(0, 24, 2)][ranks.rank() :: 2]
model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss)
engine.add(StopOnSignal())
more = data * 20 + data[: ranks.rank()]  # one rank has one batch more

@engine.evaluation.on(Events.ITERATION_COMPLETED)
def wait(state):
    if state.iteration == 2 and state.parent.epoch == 1:
        print("evaluates", flush=True)
    time.sleep(seconds)

if way == "validate":
    engine.add(Validate(more))
else:
    @engine.on(Events.EPOCH_COMPLETED)
    def evaluate(state):
        if way == "function":
            found = state.engine.evaluate(more, parent=state).metrics["loss"]
        elif ranks.rank() == 1:
            with ranks.alone():
                state.engine.evaluate(more[:30], parent=state)
        state.metrics["val/loss"] = found if way == "function" else 0.5

engine.add(EarlyStopping("val/loss", patience=9))
engine.add(JSONLines(directory + "/rows", when=Events.EPOCH_COMPLETED))
engine.add(Checkpoint(directory + "/run", resume=True))
if ranks.rank() == 1:
    @engine.evaluation.on(Events.CLOSED)
    def end(state):
        print("left at", state.iteration, flush=True)
state = engine.run(data, max_epochs=2)
print("result", state.metrics["val/loss"], model.module.weight.tolist())
"""


def interrupted(processes, who, *arguments):
    """Run two ranks, and send SIGTERM to some of them in their first evaluation."""
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        started = processes.start_ranks(2, OF_RANKS, *arguments)
        for each in started:
            stack.enter_context(each)
        assert started[1].stdout.readline() == "evaluates\n"
        for each in who:
            started[each].send_signal(SIGTERM)
        return list(pool.map(methodcaller("result"), started))


@pytest.mark.parametrize(
    ("who", "way"),
    [
        pytest.param((1,), "validate", marks=pytest.mark.slow),
        pytest.param((0, 1), "function", marks=pytest.mark.slow),
        pytest.param((1,), "function", marks=pytest.mark.soak),
        pytest.param((0, 1), "validate", marks=pytest.mark.soak),
    ],
)
def test_ranks_leave_an_evaluation_before_the_same_batch(processes, tmp_path, way, who):
    (tmp_path / "whole").mkdir()
    whole = processes.run_ranks(2, OF_RANKS, tmp_path / "whole", 0, way)
    results = interrupted(processes, who, tmp_path, 0.03, way)
    assert [each.returncode for each in results] == [143, 143], results[0].stderr[-2000:]
    assert int(results[1].stdout.rpartition("left at ")[2]) < 100
    assert checkpoints(tmp_path / "run").latest().manifest.iteration == 6
    resumed = processes.run_ranks(2, OF_RANKS, tmp_path, 0, way)
    for one, other in zip(resumed, whole, strict=True):
        assert one.stdout.splitlines()[-1] == other.stdout.splitlines()[-1]
    assert (tmp_path / "rows").read_text() == (tmp_path / "whole/rows").read_text()


@pytest.mark.slow
def test_an_evaluation_of_one_rank_alone_is_made_to_its_end(processes, tmp_path):
    results = interrupted(processes, [1], tmp_path, 0.05, "alone")
    assert [each.returncode for each in results] == [143, 143], results[1].stderr[-2000:]
    assert "left at 30" in results[1].stdout
