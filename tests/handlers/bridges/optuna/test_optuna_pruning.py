"""Optuna's trials: pruned by any metric, closed well, and continued after a kill."""

import json
import sys
import time

import optuna
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from camshaft import Engine, Events, Stage, supervised
from camshaft.engine.changes.reached import functions_of, search
from camshaft.handlers import (
    Checkpoint,
    JSONLines,
    OptunaPruning,
    RestoreBest,
    Validate,
    checkpoints,
)

optuna.logging.set_verbosity(optuna.logging.WARNING)


class After(optuna.pruners.BasePruner):
    """Prunes each trial at a given step."""

    def __init__(self, step):
        self.step = step

    def prune(self, study, trial):
        return trial.last_step >= self.step


def data():
    torch.manual_seed(7)
    return [(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(3)]


def build(*handlers):
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    engine = supervised(model, torch.optim.Adam(model.parameters(), lr=0.1), mse_loss)
    return engine.add(Validate(data()), *handlers)


def test_a_trial_is_pruned_when_its_run_is_completed_and_closed(tmp_path):
    study, seen = optuna.create_study(pruner=After(3)), []

    def objective(trial):
        engine = build(
            JSONLines(tmp_path / "rows", when=Events.EPOCH_COMPLETED | Events.COMPLETED),
            OptunaPruning(trial, metric="val/loss"),
            RestoreBest("val/loss"),
            Checkpoint(tmp_path / "run"),
        )
        engine.on(Events.COMPLETED)(lambda state: seen.append(state.stop_reason))
        engine.on(Events.CLOSED, stage=Stage.REPORT)(lambda state: seen.append("closed"))
        return engine.run(data(), max_epochs=10).metrics["val/loss"]

    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert trial.state is optuna.trial.TrialState.PRUNED
    assert sorted(trial.intermediate_values) == [1, 2, 3]
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert [row["val/loss"] for row in rows] == [*trial.intermediate_values.values()]
    reason = f"pruned by Optuna: val/loss={trial.intermediate_values[3]:.6g} at step 3"
    assert seen == [reason, "closed"]
    assert checkpoints(tmp_path / "run").latest().manifest.epoch == 3


def test_a_trial_that_is_not_pruned_gives_its_value():
    study = optuna.create_study()

    def objective(trial):
        engine = build(
            OptunaPruning(trial, metric="val/loss", when=Events.ITERATION_COMPLETED(every=2))
        )
        engine.on(Events.ITERATION_COMPLETED(every=2), stage=Stage.MEASURE)(measure)
        return float(engine.run(data(), max_epochs=2).metrics["val/loss"])

    def measure(state):
        state.metrics["val/loss"] = torch.tensor(1.0 / state.iteration)

    study.optimize(objective, n_trials=1)
    assert study.trials[0].intermediate_values == {2: 0.5, 4: 0.25, 6: pytest.approx(1 / 6)}
    assert study.trials[0].state is optuna.trial.TrialState.COMPLETE


@pytest.mark.parametrize(
    ("when", "steps"),
    [
        (Events.EPOCH_COMPLETED(last=True), [1, 2]),
        (Events.STEP_COMPLETED(every=2), [2, 4]),
        (Events.ITERATION_COMPLETED(every=2) | Events.EPOCH_COMPLETED, [2, 3, 4]),
    ],
)
def test_the_step_is_on_the_clock_of_the_trigger(when, steps):
    trial = optuna.create_study().ask()
    engine = build(OptunaPruning(trial, metric="loss", when=when))
    engine.run(data(), max_epochs=None, max_iterations=5)
    assert sorted(trial.study.trials[0].intermediate_values) == steps


@pytest.mark.slow
def test_a_function_of_the_run_may_hold_a_trial_whose_storage_is_not_searched(tmp_path):
    study = optuna.create_study(storage=f"sqlite:///{tmp_path}/study.db")
    trial, seen = study.ask(), []

    def tell(state):
        seen.append((trial.number, state.epoch))

    engine = build(Checkpoint(tmp_path / "run"))
    engine.on(Events.EPOCH_COMPLETED)(tell)
    engine.run(data(), max_epochs=2)
    assert seen == [(0, 1), (0, 2)]
    assert len(search(functions_of([tell]))) < 10


@pytest.mark.slow
def test_a_trial_that_goes_on_reports_no_step_twice(tmp_path):
    """The storage knows step 4 already when the run goes on from its checkpoint of epoch 3."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/study.db")
    study = optuna.create_study(storage=storage)
    trial, asked = study.ask(), []

    def engine(trial):
        return build(
            OptunaPruning(trial, metric="val/loss"), Checkpoint(tmp_path / "run", resume=True)
        )

    def fail(state):
        raise KeyboardInterrupt

    first = engine(trial)
    first.on(Events.EPOCH_COMPLETED(at=4), stage=Stage.REPORT)(fail)
    with pytest.raises(KeyboardInterrupt):
        first.run(data(), max_epochs=6)
    known = dict(study.trials[0].intermediate_values)
    assert sorted(known) == [1, 2, 3, 4]
    second = engine(optuna.trial.Trial(study, trial._trial_id))  # as in a process of its own
    second.on(Events.EPOCH_COMPLETED)(lambda state: asked.append(state.epoch))
    second.run(data(), max_epochs=6)  # a second report of step 4 would be a warning: an error here
    assert asked == [4, 5, 6]
    values = study.trials[0].intermediate_values
    assert sorted(values) == [1, 2, 3, 4, 5, 6]
    assert {step: values[step] for step in known} == known


def test_a_run_that_was_pruned_before_its_process_died_is_pruned_again(tmp_path, caplog):
    study = optuna.create_study(pruner=After(2))
    trial = study.ask()
    for epochs in ([1, 2], []):
        seen = []
        engine = build(OptunaPruning(trial, metric="val/loss"), Checkpoint(tmp_path, resume=True))
        engine.on(Events.EPOCH_COMPLETED)(lambda state, seen=seen: seen.append(state.epoch))
        with pytest.raises(optuna.TrialPruned, match="at step 2"):
            engine.run(data(), max_epochs=6)
        assert seen == epochs
    assert "nothing to run: the run is over (pruned by Optuna: val/loss" in caplog.text


def test_mistakes_are_told(monkeypatch):
    trial = optuna.create_study().ask()
    with pytest.raises(TypeError, match="needs the name of a metric"):
        OptunaPruning(trial, metric=None)
    with pytest.raises(TypeError, match="needs the trial that the objective was given"):
        OptunaPruning("val/loss", metric="val/loss")
    with pytest.raises(ValueError, match="rank 0 needs the trial"):
        build(OptunaPruning(None, metric="val/loss"))
    with pytest.raises(LookupError, match="no metric 'accuracy'"):
        build(OptunaPruning(trial, metric="accuracy")).run(data(), max_epochs=1)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r'pip install "camshaft\[optuna\]"'):
        OptunaPruning(trial, metric="val/loss")
    assert Engine(lambda state, batch: batch).run([1], max_epochs=1).output == 1


SWEEP = """
import os, signal, sys, warnings
import optuna, torch
from torch import nn
from camshaft import Events, Stage, supervised
from camshaft.handlers import Checkpoint, OptunaPruning, Validate

directory, kill = sys.argv[1], len(sys.argv) > 2
optuna.logging.set_verbosity(optuna.logging.WARNING)
storage = optuna.storages.RDBStorage(
    f"sqlite:///{directory}/study.db",
    heartbeat_interval=1,
    grace_period=1,
    heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(
        inherit_intermediate_values=True
    ),
)
sampler = optuna.samplers.RandomSampler(seed=1)
study = optuna.create_study(
    storage=storage, study_name="sweep", load_if_exists=True, sampler=sampler
)

def objective(trial):
    folder = trial.user_attrs.get("folder", f"{directory}/{trial.number}")
    trial.set_user_attr("folder", folder)
    torch.manual_seed(0)
    data = [(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(3)]
    model = nn.Linear(2, 1)
    rate = trial.suggest_float("lr", 1e-3, 1e-1, log=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(Validate(data), OptunaPruning(trial, metric="val/loss"))
    engine.add(Checkpoint(folder, resume=True))

    @engine.on(Events.EPOCH_COMPLETED(at=4), stage=Stage.REPORT)
    def die(state):
        if kill and trial.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    return float(engine.run(data, max_epochs=6).metrics["val/loss"])

finished = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
warnings.simplefilter("error")
study.optimize(objective, callbacks=[optuna.study.MaxTrialsCallback(3, states=finished)])
for trial in study.get_trials(states=finished):
    print(trial.user_attrs["folder"][-1], trial.params, trial.value, trial.intermediate_values)
"""


@pytest.mark.slow
def test_a_sweep_that_was_killed_goes_on_with_the_trial_that_it_was_in(processes, tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = processes.run(SWEEP, tmp_path / "whole").stdout
    processes.run(SWEEP, tmp_path / "killed", "kill", code=-9)
    study = optuna.load_study(study_name="sweep", storage=f"sqlite:///{tmp_path}/killed/study.db")
    assert sorted(study.trials[1].intermediate_values) == [1, 2, 3, 4]
    saved = checkpoints(tmp_path / "killed" / "1").latest().manifest.epoch
    assert saved in (2, 3)  # the third may not have been written to its end
    time.sleep(2.5)  # until the heartbeat is known to have ended
    resumed = processes.run(SWEEP, tmp_path / "killed").stdout
    assert sorted(resumed.splitlines())[:2] == sorted(whole.splitlines())[:2]  # trials 0 and 1
    assert len(resumed.splitlines()) == 3
