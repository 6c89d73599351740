"""Results of another process: when they count, for which checkpoint, and after which kills."""

import json
import logging
import math
import os
import shutil
import signal
from threading import Timer

import pytest
import torch
from torch import nn

from camshaft import Engine, Events, Stage
from camshaft.handlers import (
    Checkpoint,
    EarlyStopping,
    Export,
    JSONLines,
    RestoreBest,
    StopAfter,
    StopOnSignal,
    Validate,
    ValidateElsewhere,
    ValidationEvents,
    best,
    checkpoints,
    follow,
    latest,
)
from camshaft.handlers.cluster.local import LocalCheckpoint

SCORES = {2: 0.5, 4: 0.25, 6: 0.75, 8: 0.625, 10: 1.5, 12: 2.0}
"""What is measured, by the iteration of the weights."""


class Killed(BaseException):
    pass


def evaluate(directory, scores=SCORES, name="val", **how):
    """Evaluate what is there, in a script that ends then; the iterations that were evaluated."""
    done = []
    for saved in follow(directory, name=name, idle=0, **how):
        iteration = saved.manifest.iteration
        assert [*saved.state_dict("model")] == ["weight", "pace"]
        if (score := scores.get(iteration)) is not None:
            assert saved.write({"loss": score})
        done.append(iteration)
    return done


def training(directory, *handlers, evaluator=None, keep=None, start_over=False, **given):
    """A run whose steps depend on what came, and in whose middle others evaluate."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    model.register_buffer("pace", torch.ones(()))

    def step(state, batch):
        model.weight.data += model.pace

    engine = Engine(step, objects={"model": model})
    if evaluator is not None:
        engine.on(Events.ITERATION_STARTED)(lambda state: evaluator(state.iteration))
        engine.on(Events.COMPLETED, stage=Stage.MEASURE)(lambda state: evaluator(math.inf))
    given = {"lag": 3, "when": Events.ITERATION_COMPLETED(every=2), **given}
    engine.add(ValidateElsewhere(**given), *handlers)

    @engine.on(ValidationEvents.VALIDATED)
    def decide(state):
        model.pace.fill_(2.0 ** -state.metrics.get("val/loss", 0.0))

    how = {"start_over": True} if start_over else {"resume": True}
    keep = keep or latest()
    every = Events.ITERATION_COMPLETED(every=5)
    rows = JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED)
    return engine.add(Checkpoint(directory, when=every, keep=keep, background=False, **how), rows)


def run(directory, *handlers, to=12, **given):
    """The outcome of a run in which all is evaluated in time, unless told otherwise."""
    given = {"evaluator": lambda _: evaluate(directory), **given}
    engine = training(directory, *handlers, **given)
    state = engine.run(range(100), max_iterations=to)
    return engine.objects["model"].weight.item(), dict(state.metrics), state.stop_reason


def rows(directory):
    return [json.loads(line) for line in (directory / "rows.jsonl").read_text().splitlines()]


def test_a_result_counts_at_its_iteration_and_for_the_weights_that_were_measured(tmp_path):
    seen = []
    engine = training(tmp_path, evaluator=lambda _: evaluate(tmp_path))
    engine.on(ValidationEvents.VALIDATED)(lambda s: seen.append((s.iteration, dict(s.metrics))))
    state = engine.run(range(100), max_iterations=11)
    taken = [(at, metrics["val/of_iteration"], metrics["val/loss"]) for at, metrics in seen]
    assert taken == [(k + 3, k, SCORES[k]) for k in (2, 4, 6, 8)]
    assert state.metrics["val/of_iteration"] == 10  # at the end, when nothing is decided any more
    measured = [row for row in rows(tmp_path) if "val/loss" in row]
    assert [(row["iteration"], row["val/of_iteration"]) for row in measured] == [
        *((5, 2), (7, 4), (9, 6), (11, 8), (11, 10))
    ]
    assert checkpoints(tmp_path)[-1].manifest.metrics["val/loss"] == SCORES[10]


def test_best_keeps_the_checkpoint_that_was_measured(tmp_path):
    keep = latest() | best(2, "val/loss")
    run(tmp_path, keep=keep, to=11)
    kept = {each.manifest.iteration: each.manifest.metrics for each in checkpoints(tmp_path)}
    assert [*kept] == [2, 4, 10, 11]  # the result of 10 is of the end, and decides nothing
    assert {n: kept[n]["val/loss"] for n in (2, 4, 10)} == {n: SCORES[n] for n in (2, 4, 10)}
    assert checkpoints(tmp_path).best("val/loss").manifest.iteration == 4
    assert all(each.problem() is None for each in checkpoints(tmp_path))
    assert checkpoints(tmp_path)[0].state_dict("model")["weight"].item() == 2


def test_what_awaits_its_result_is_not_dropped(tmp_path):
    there = []

    def look(iteration):
        there.append([each.manifest.iteration for each in checkpoints(tmp_path)])
        if iteration >= 10:
            evaluate(tmp_path)

    run(tmp_path, evaluator=look, lag=8, to=11)
    assert there[9:] == [[2, 4, 6, 8], [4, 6, 8, 10], [4, 6, 8, 10]]


@pytest.mark.quick(at=3)
@pytest.mark.parametrize("at", [5, 8, 10, 2, 3, 4, 6, 7, 9, 11, 12])
def test_killed_anywhere_it_decides_the_same(tmp_path, at):
    def kill(iteration):
        evaluate(tmp_path / "killed")
        if iteration == at:
            raise Killed

    expected = run(tmp_path / "whole")
    with pytest.raises(Killed):
        run(tmp_path / "killed", evaluator=kill)
    assert run(tmp_path / "killed") == expected
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    names = [
        {each.name for each in (tmp_path / place / "evaluations/val").iterdir()}
        for place in ("whole", "killed")
    ]
    assert names[0] == names[1]


def test_numbers_that_are_not_finite_are_the_same_numbers(tmp_path):
    scores = {2: math.nan, 4: -math.inf, 6: math.inf, 8: 0.1 + 0.2, 10: 5e-324}
    engine = training(tmp_path, lag=1, evaluator=lambda _: evaluate(tmp_path, scores))
    found = []
    engine.on(ValidationEvents.VALIDATED)(lambda state: found.append(state.metrics["val/loss"]))
    engine.run(range(100), max_iterations=11)
    assert repr(found) == repr([*scores.values()])


def test_what_was_skipped_stays_skipped(tmp_path, caplog):
    """Though its result comes before the run that is resumed is there again."""
    expected = run(tmp_path / "whole", evaluator=None, late="skip")
    assert "of iteration 2: skipped, as there was no result at iteration 5" in caplog.text

    def kill(iteration):
        if iteration == 10:
            raise Killed

    with pytest.raises(Killed):
        run(tmp_path / "killed", evaluator=kill, late="skip")
    assert checkpoints(tmp_path / "killed")[-1].manifest.iteration == 8  # 6 is decided in 9
    assert evaluate(tmp_path / "killed") == [8]
    again = run(tmp_path / "killed", evaluator=None, late="skip")
    assert again != expected  # that of 8 was there in time, and counts in 11
    assert again[1]["val/of_iteration"] == 8
    assert [row["iteration"] for row in rows(tmp_path / "killed") if "val/loss" in row] == [11]


def test_a_result_that_comes_too_late_changes_nothing(tmp_path, caplog):
    def come_late(iteration):
        if iteration == 3:
            pending.extend(follow(tmp_path, idle=0))
        if iteration == 6:
            assert not pending[0].write({"loss": 0.0})

    pending = []
    assert "val/loss" not in run(tmp_path, evaluator=come_late, late="skip", to=7)[1]
    assert "iteration-0000000002 came too late" in caplog.text


def test_the_end_of_a_run_decides_nothing_that_a_longer_one_decides_later(tmp_path):
    whole = run(tmp_path / "whole")
    for to in (5, 6, 8, 9):
        assert run(tmp_path / f"{to}", to=to)[2] == "max_iterations"
        assert run(tmp_path / f"{to}") == whole


def test_a_run_that_is_started_over_takes_no_result_of_the_one_before(tmp_path):
    run(tmp_path, to=5)
    others = dict.fromkeys(SCORES, 3.0)
    run(tmp_path, start_over=True, evaluator=lambda _: evaluate(tmp_path, others), to=5)
    assert rows(tmp_path)[-1]["val/loss"] == 3
    assert len([*tmp_path.glob("evaluations/val/earlier.1/*.json")]) == 2


def test_other_weights_of_the_same_iteration_are_evaluated_anew(tmp_path):
    def kill(iteration):
        evaluate(tmp_path)
        if iteration == 5:
            raise Killed

    with pytest.raises(Killed):
        run(tmp_path, evaluator=kill)
    for each in checkpoints(tmp_path)[1:]:  # so the run goes on from iteration 2
        each.path.rename(tmp_path / f"moved-{each.path.name}")
    engine = training(tmp_path, evaluator=lambda _: evaluate(tmp_path, {4: 9.0, 6: 9.0}))
    change = engine.on(Events.ITERATION_STARTED(at=3))
    change(lambda state: engine.objects["model"].weight.data.add_(1))
    assert engine.run(range(100), max_iterations=7).metrics["val/loss"] == 9
    assert len([*tmp_path.glob("evaluations/val/iteration-0000000004.*.json")]) == 2


def test_early_stopping_and_its_patience_go_by_what_comes(tmp_path):
    stops = EarlyStopping("val/loss", patience=2, when=ValidationEvents.VALIDATED)
    assert run(tmp_path, stops)[2].startswith("early stopping: val/loss")


@pytest.mark.parametrize("kind", ["signal", "time"])
def test_a_run_that_waits_can_be_stopped_and_goes_on_waiting(tmp_path, kind):
    expected = run(tmp_path / "whole")
    place = tmp_path / "stopped"

    def stop(iteration):
        if iteration < 5:
            evaluate(place, {})
        elif kind == "signal":
            Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()  # while it waits

    stops = StopOnSignal(exit=False) if kind == "signal" else StopAfter(0.5)
    engine = training(place, stops, evaluator=stop)
    state = engine.run(range(100), max_iterations=12)
    assert (state.iteration, state.is_interrupted) == (5, True)
    assert "val/loss" not in state.metrics
    assert evaluate(place) == [2, 4]
    assert run(place) == expected
    assert rows(place) == rows(tmp_path / "whole")


def test_a_run_that_waits_too_long_says_what_to_start(tmp_path):
    says = r"of iteration 2 is not there .* follow\(..., name='val'\)"
    with pytest.raises(TimeoutError, match=says):
        run(tmp_path, evaluator=None, patience=0.1)
    assert run(tmp_path)[2] == "max_iterations"


def test_a_result_that_can_never_come_is_an_error_or_a_warning(tmp_path, caplog):
    def lose(iteration):
        if iteration == 5:
            for each in checkpoints(tmp_path):
                shutil.rmtree(each.path)

    with pytest.raises(FileNotFoundError, match="no such checkpoint is in .*; to go on without"):
        run(tmp_path, evaluator=lose)
    run(tmp_path, evaluator=lose, late="skip", to=6)
    assert "of iteration 2: no such checkpoint" in caplog.text


def test_a_damaged_result_says_which_file_to_remove(tmp_path):
    def damage(iteration):
        if iteration == 5:
            evaluate(tmp_path)
            (file,) = tmp_path.glob("evaluations/val/*2.*.json")
            file.write_text(file.read_text()[:20])

    with pytest.raises(ValueError, match=r"0002\.\w+\.json cannot be used .*: remove it"):
        run(tmp_path, evaluator=damage)


def test_a_window_that_is_open_delays_a_result(tmp_path):
    class Window:
        accumulate = 2

        def close(self, state):
            state.step_under_way.windows.clear()

    window, at = Window(), []
    engine = training(tmp_path, evaluator=lambda _: evaluate(tmp_path))

    @engine.on(Events.ITERATION_STARTED)
    def open_window(state):
        windows = state.step_under_way.windows
        windows.clear() if state.iteration % 2 == 0 else windows.update({window: 1})

    engine.on(ValidationEvents.VALIDATED)(lambda state: at.append(state.iteration))
    engine.run(range(100), max_iterations=8)
    assert at == [6, 8]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"lag": 1.5}, TypeError, "needs a whole number"),
        ({"lag": 0}, ValueError, "from 1"),
        ({"late": "never"}, ValueError, "'wait' or 'skip'"),
        ({"patience": 0}, ValueError, "needs some seconds"),
        ({"name": "a/b"}, ValueError, "needs letters and digits"),
        ({"name": 3}, TypeError, "needs the name of the evaluation"),
        ({"when": Events.EPOCH_COMPLETED(last=True)}, ValueError, "leave last=True out"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(given, error, said):
    with pytest.raises(error, match=said):
        ValidateElsewhere(**{"lag": 1, **given})


def test_what_it_does_not_work_with_is_refused_before_the_run(tmp_path):
    for other, said in [
        (Validate([1]), "two validations have the name 'val'"),
        (ValidateElsewhere(lag=9), "two validations have the name 'val'"),
        (RestoreBest("val/loss"), r"are 3 iterations older: keep the checkpoint by"),
        (
            Export(tmp_path / "best", keep=best(1, "val/loss")),
            "Export keeps the weights",
        ),
        (Checkpoint(tmp_path / "other"), "there is Checkpoint, Checkpoint"),
    ]:
        with pytest.raises(ValueError, match=said):
            training(tmp_path / "run", other).run([1], max_epochs=1)
    for saves in [[], [LocalCheckpoint(tmp_path / "local")]]:
        engine = Engine(lambda state, batch: None, ValidateElsewhere(lag=1), *saves)
        with pytest.raises(ValueError, match="needs one Checkpoint in its engine"):
            engine.run([1], max_epochs=1)


def test_best_by_a_metric_that_comes_later_is_no_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "camshaft"):
        run(tmp_path, keep=best(1, "val/loss"))
    assert "which no handler has produced" not in caplog.text


def test_two_evaluations_of_a_run_have_results_of_their_own(tmp_path):
    other = ValidateElsewhere("test", lag=1, when=Events.ITERATION_COMPLETED(every=3))

    def evaluator(_):
        return evaluate(tmp_path), evaluate(tmp_path, {3: 7.0, 6: 8.0}, "test")

    metrics = run(tmp_path, other, evaluator=evaluator, to=8)[1]
    assert (metrics["test/loss"], metrics["test/of_iteration"]) == (8, 6)
    assert (metrics["val/loss"], metrics["val/of_iteration"]) == (SCORES[8], 8)
    scored = {each.manifest.iteration: each.manifest.metrics for each in checkpoints(tmp_path)}
    assert scored[8]["test/of_iteration"] == 6
