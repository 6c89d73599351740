"""Checkpoints of real runs: the resumed run is the same run, to the last bit."""

import json
import logging
import os
import random
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events, State, Update, supervised
from camshaft.handlers import EarlyStopping, LRSchedule, Metrics, Validate, best, every, latest
from camshaft.handlers.checkpoint import Checkpoint, checkpoints

INPUTS = torch.linspace(-1, 1, 44).reshape(11, 4)


@dataclass
class History:
    losses: list[float] = field(default_factory=list)
    total: torch.Tensor = field(default_factory=lambda: torch.zeros(()))


class Diary:
    """A handler that remembers each loss, and draws from Python's and NumPy's generators."""

    def attach(self, engine):
        engine.on(Events.ITERATION_COMPLETED)(self.note)

    def note(self, state):
        history = state.recall(self, History)
        loss = state.metrics["loss"].item() + random.random() + np.random.rand()
        history.losses.append(loss)
        history.total = history.total + loss


class Mean:
    """A metric like torchmetrics' and pytorch-ignite's, without either."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.sum, self.count = 0.0, 0

    def update(self, prediction, target):
        self.sum += prediction.sum().item()
        self.count += len(target)

    def compute(self):
        return self.sum / self.count

    def state_dict(self):
        return {"sum": self.sum, "count": self.count}

    def load_state_dict(self, saved):
        self.sum, self.count = saved["sum"], saved["count"]


class CrashError(Exception):
    pass


def crash(state):
    raise CrashError


@dataclass
class Script:
    """What a training script makes anew whenever it is started."""

    handlers: tuple
    seed: int = 0
    accumulate: int = 1
    generator: bool = False

    def __post_init__(self):
        torch.manual_seed(self.seed)
        random.seed(self.seed)
        np.random.seed(self.seed)
        self.model = nn.Sequential(
            *(nn.Linear(4, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 1))
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 12)
        loss = nn.functional.mse_loss
        self.engine = supervised(self.model, self.optimizer, loss, accumulate=self.accumulate)
        self.diary = Diary()
        self.engine.add(LRSchedule(schedule), self.diary, Metrics({"mean": Mean()}), *self.handlers)

    def run(self, **limits):
        data = TensorDataset(INPUTS, INPUTS[:, :1])
        own = torch.Generator().manual_seed(self.seed) if self.generator else None
        loader = DataLoader(data, 3, shuffle=True, generator=own)
        self.state = self.engine.run(loader, **(limits or {"max_epochs": 3}))
        return self.outcome()

    def outcome(self):
        return {
            "weights": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "counts": (self.state.iteration, self.state.step, self.state.epoch),
            "metrics": dict(self.state.metrics),
            "memory": self.state.memory.saved.get("Diary"),
            "next": (torch.rand(3), random.random(), np.random.rand()),
        }


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, History):
        return equal(vars(a), vars(b))
    return a == b


def interrupted(directory, when, crash_at, limits=None, **script):
    """A run that crashes and is resumed by a script that starts with other random numbers."""
    first = Script((Checkpoint(directory, when=when),), **script)
    first.engine.on(Events.ITERATION_STARTED(at=crash_at))(crash)
    with pytest.raises(CrashError):
        first.run(**limits or {})
    second = Script((Checkpoint(directory, when=when, resume=True),), seed=7, **script)
    started = []
    second.engine.on(Events.STARTED)(lambda state: started.append(state.iteration))
    outcome = second.run(**limits or {})
    return outcome, started[0]


@pytest.mark.parametrize("saved_at", range(1, 12))
def test_a_run_resumed_at_any_iteration_is_the_run_that_was_never_interrupted(tmp_path, saved_at):
    whole = Script(()).run()
    when = Events.ITERATION_COMPLETED(at=saved_at)
    resumed, began = interrupted(tmp_path, when, saved_at + 1)
    assert began == saved_at
    assert equal(resumed, whole)


@pytest.mark.parametrize("crash_at", [5, 8, 9, 12])
def test_a_run_resumed_at_the_end_of_an_epoch_is_the_run_that_was_never_interrupted(
    tmp_path, crash_at
):
    whole = Script(()).run()
    resumed, began = interrupted(tmp_path, Events.EPOCH_COMPLETED, crash_at)
    assert began == (crash_at - 1) // 4 * 4
    assert equal(resumed, whole)


@pytest.mark.parametrize(
    ("when", "began"),
    [
        (Events.STARTED, 0),
        (Events.EPOCH_STARTED(at=2), 4),
        (Events.ITERATION_STARTED(at=6), 6),
        (Events.GRADIENTS_READY(at=3), 6),
        (Events.STEP_COMPLETED(at=3), 6),
    ],
    ids=str,
)
def test_a_save_asked_for_anywhere_holds_a_whole_step(tmp_path, when, began):
    whole = Script((), accumulate=2).run()
    resumed, found = interrupted(tmp_path, when, began + 2, accumulate=2)
    assert found == began
    assert equal(resumed, whole)


@pytest.mark.quick(limits=1)
@pytest.mark.parametrize("limits", [{"max_epochs": 4, "epoch_length": 3}, {"max_iterations": 10}])
@pytest.mark.parametrize(
    "generator",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["torch's generator", "own generator"],
)
@pytest.mark.parametrize("when", [Events.EPOCH_STARTED, Events.ITERATION_COMPLETED], ids=str)
def test_virtual_epochs_other_limits_and_own_generators_resume_the_same(
    tmp_path, limits, generator, when
):
    whole = Script((), generator=generator).run(**limits)
    for crash_at in (1, 2, 5, 7, 10):
        directory = tmp_path / str(crash_at)
        if when == Events.ITERATION_COMPLETED and crash_at == 1:
            continue
        resumed, _ = interrupted(directory, when, crash_at, limits, generator=generator)
        assert equal(resumed, whole), crash_at


def test_a_run_that_crashes_again_and_again_is_the_same_run(tmp_path):
    whole = Script(()).run()
    for seed, crash_at in enumerate([2, 3, 6, 9, 10, 12]):
        script = Script((Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED, resume=True),), seed)
        script.engine.on(Events.ITERATION_STARTED(at=crash_at))(crash)
        with pytest.raises(CrashError):
            script.run()
        assert checkpoints(tmp_path)[-1].manifest.iteration == crash_at - 1
    script = Script((Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED, resume=True),), seed=9)
    assert equal(script.run(), whole)


def numbers(directory):
    return sorted(each.manifest.iteration for each in checkpoints(directory))


def scoring(scores, *handlers):
    """An engine whose only metric is taken from a list, one an epoch."""
    engine = Engine(lambda state, batch: None, objects={"model": nn.Linear(1, 1)})

    @engine.on(Events.EPOCH_COMPLETED)
    def score(state):
        state.metrics["score"] = scores[state.epoch - 1]

    return engine.add(*handlers)


def scores_of(directory):
    return [each.manifest.metrics["score"] for each in checkpoints(directory)]


def test_the_best_so_far_outlives_a_resume(tmp_path):
    keep = best(1, "score", mode="max")
    scores = [0.9, 0.5, float("nan"), 0.8]
    scoring(scores, Checkpoint(tmp_path, keep=keep)).run("ab", max_epochs=2)
    scoring(scores, Checkpoint(tmp_path, keep=keep, resume=True)).run("ab", max_epochs=4)
    assert scores_of(tmp_path) == [0.9, 0.8]
    script = scoring(scores, Checkpoint(tmp_path, keep=keep, resume="best"))
    script.on(Events.STARTED)(lambda state: state.stop(f"at {state.epoch}", resumable=True))
    assert script.run("ab", max_epochs=9).stop_reason == "at 1"


def test_a_score_that_nothing_produces_is_told_of_once_with_those_there_are(tmp_path, caplog):
    keep = best(1, "val/score") | latest(1)
    with caplog.at_level(logging.WARNING, "camshaft"):
        scoring([0.1, 0.2], Checkpoint(tmp_path, keep=keep)).run("ab", max_epochs=2)
    (record,) = caplog.records
    assert "goes by 'val/score', which no handler has produced so far" in record.getMessage()
    assert "are 'score'" in record.getMessage()
    assert scores_of(tmp_path) == [0.2]


@pytest.mark.parametrize("every", [3, 2])
def test_a_run_that_ends_before_its_first_save_says_so(every, tmp_path, caplog):
    checkpoint = Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED(every=every), resume=True)
    scoring([0.1], checkpoint).run("ab", max_epochs=1)
    messages = [each.getMessage() for each in caplog.records]
    told = [each for each in messages if "has saved nothing: " in each]
    assert len(told) == (every == 3)
    assert not told or "ITERATION_COMPLETED(every=3) did not fire in 2 iterations" in told[0]


def test_files_that_are_not_ours_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "iteration-0000000001").mkdir()
    (tmp_path / "iteration-0000000001/mine").touch()
    scoring([0.1] * 5, Checkpoint(tmp_path, keep=latest(1))).run("ab", max_epochs=5)
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "iteration-0000000001/mine").exists()
    assert numbers(tmp_path) == [10]


def test_a_checkpoint_that_holds_files_of_somebody_else_is_not_dropped(tmp_path, caplog):
    engine = scoring([0.1] * 4, Checkpoint(tmp_path, keep=latest(1), background=False))
    note = tmp_path / "iteration-0000000002/notes.txt"
    engine.on(Events.EPOCH_STARTED(at=2))(lambda state: note.write_text("mine"))
    engine.run("ab", max_epochs=4)
    assert note.read_text() == "mine"
    assert numbers(tmp_path) == [2, 8]
    said = "stays: it holds files that are not Camshaft's: ['notes.txt']"
    assert caplog.text.count(said) == 1  # and not at each save


def test_the_one_that_the_script_names_is_never_dropped(tmp_path):
    scoring([0.1] * 9, Checkpoint(tmp_path, keep=latest(3))).run("ab", max_epochs=3)
    named = checkpoints(tmp_path)[0].path
    for _ in range(2):
        handler = Checkpoint(tmp_path, keep=latest(2), resume=os.path.relpath(named))
        state = scoring([0.1] * 9, handler).run("ab", max_epochs=9)
        assert state.epoch == 9
    assert numbers(tmp_path) == [2, 16, 18]


@pytest.mark.parametrize("is_one", [False, True], ids=["directory", "one checkpoint"])
def test_a_fork_begins_at_its_parent_once_and_goes_on_with_its_own_after_a_crash(tmp_path, is_one):
    own, parent = tmp_path / "fork", tmp_path / "parent"
    when = Events.ITERATION_COMPLETED(every=2)
    Script((Checkpoint(parent, when=when, keep=every(1)),)).run(max_epochs=1)
    kept = [(each.manifest, each.path.stat().st_mtime_ns) for each in checkpoints(parent)]
    named = checkpoints(parent)[0].path if is_one else parent

    def fork(directory, seed):
        handler = Checkpoint(directory, when=when, resume=True, parent=named)
        return Script((handler,), seed=seed)

    whole = fork(tmp_path / "whole", 3).run()
    first, began = fork(own, 3), []
    first.engine.on(Events.ITERATION_STARTED(at=9))(crash)
    with pytest.raises(CrashError):
        first.run()
    shutil.move(parent, tmp_path / "gone")
    second = fork(own, 5)
    second.engine.on(Events.STARTED)(lambda state: began.append(state.iteration))
    assert equal(second.run(), whole)
    assert began == [8]
    assert [(e.manifest, e.path.stat().st_mtime_ns) for e in checkpoints(tmp_path / "gone")] == kept
    assert numbers(own)[0] > (2 if is_one else 4)


def test_a_fork_without_any_checkpoint_to_begin_from_does_not_start(tmp_path):
    script = Script((Checkpoint(tmp_path / "fork", resume=True, parent=tmp_path / "none"),))
    with pytest.raises(FileNotFoundError, match="none' holds no checkpoint, and neither does"):
        script.run()
    with pytest.raises(ValueError, match="a run that forks off goes on from its own"):
        Checkpoint(tmp_path, parent=tmp_path / "none")


def test_a_run_set_back_writes_its_iterations_again_and_goes_on_from_there(tmp_path):
    scoring([0.1] * 9, Checkpoint(tmp_path, keep=latest(9))).run("ab", max_epochs=3)
    first = checkpoints(tmp_path)[0].path
    handler = Checkpoint(tmp_path, keep=latest(9), resume=first)
    scoring([0.2] * 9, handler).run("ab", max_epochs=2)
    written = [(each.manifest.iteration, each.manifest.number) for each in checkpoints(tmp_path)]
    assert written == [(2, 1), (6, 3), (4, 4)]
    handler = Checkpoint(tmp_path, keep=latest(9), resume="latest")
    state = scoring([0.3] * 9, handler).run("ab", max_epochs=3)
    assert scores_of(tmp_path) == [0.1, 0.2, 0.3]
    assert state.iteration == 6


def test_saves_of_one_commit_point_are_one_checkpoint_with_all_reasons(tmp_path):
    engine = Engine(lambda state, batch: None)
    handler, other = Checkpoint(tmp_path / "a"), Checkpoint(tmp_path / "b", when=Events.STARTED)
    engine.add(handler, other)

    @engine.on(Events.ITERATION_COMPLETED(at=3))
    def ask(state):
        state.save("the user asked")
        state.save("only the first", by=handler)
        state.save("the user asked")

    engine.run("abcde", max_iterations=4)
    reasons = [each.manifest.reason for each in checkpoints(tmp_path / "a")]
    assert reasons == ["the user asked, only the first", "Events.EPOCH_COMPLETED(last=True)"]
    reasons = [each.manifest.reason for each in checkpoints(tmp_path / "b")]
    assert reasons == ["Events.STARTED", "the user asked"]
    assert numbers(tmp_path / "b") == [0, 3]


def listing(directory):
    """Every path with what changes when it is written anew or renamed."""
    paths = [path for path in sorted(directory.rglob("*")) if path.name != "LOCK"]
    return [(str(path), path.stat().st_ino, path.stat().st_mtime_ns) for path in paths]


BOTH = Events.EPOCH_COMPLETED(last=True) | Events.STEP_COMPLETED(every=2)


@pytest.mark.quick(limits=2, when=1)
@pytest.mark.parametrize("sized", [True, False], ids=["known length", "unknown length"])
@pytest.mark.parametrize("when", [BOTH, BOTH | Events.COMPLETED], ids=str)
@pytest.mark.parametrize(
    "limits",
    [{"max_epochs": 2}, {"max_iterations": 8}, {"max_steps": 8}, {"max_steps": 6}],
    ids=str,
)
def test_a_place_in_a_run_has_one_checkpoint_and_a_script_that_is_done_writes_nothing(
    tmp_path, caplog, limits, when, sized
):
    def run():
        engine = Engine(lambda state, batch: state.fire(Events.STEP_COMPLETED))
        engine.add(Checkpoint(tmp_path, when=when, resume=True, keep=latest(9)))
        engine.on(Events.EPOCH_COMPLETED)(lambda state: state.metrics.update(score=state.epoch))
        data = range(4) if sized else type("Stream", (), {"__iter__": lambda s: iter(range(4))})()
        return engine.run(data, **limits)

    iterations = [2, 4, 6, 8][: 3 if limits == {"max_steps": 6} else 4]
    assert run().iteration == iterations[-1]
    assert [each.path.name for each in checkpoints(tmp_path)] == [
        f"iteration-{iteration:010}" for iteration in iterations
    ]
    fourth = checkpoints(tmp_path)[1].manifest
    assert (fourth.epoch, fourth.metrics) == (1, {"score": 1.0})
    assert (tmp_path / "LATEST").read_text() == f"iteration-{iterations[-1]:010}\n"
    before = listing(tmp_path)
    assert run().iteration == iterations[-1]
    assert listing(tmp_path) == before
    assert "nothing to run" in caplog.text


def test_a_checkpoint_that_takes_the_place_of_another_has_the_reasons_of_both(tmp_path):
    engine = Engine(lambda state, batch: None, Checkpoint(tmp_path))
    engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.save("mine"))
    engine.on(Events.COMPLETED)(lambda state: state.save("at the end"))
    engine.run("abc", max_epochs=1)
    (saved,) = checkpoints(tmp_path)
    assert saved.manifest.reason == "mine, Events.EPOCH_COMPLETED(last=True), at the end"


def test_a_run_interrupted_in_the_last_iteration_of_an_epoch_has_one_checkpoint_of_it(tmp_path):
    def run(*stop):
        engine = Engine(lambda state, batch: None, Checkpoint(tmp_path, resume=True))
        for at in stop:
            engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state: state.interrupt("signal"))
        return engine.run("abc", max_epochs=1)

    assert run(3).is_interrupted
    assert not checkpoints(tmp_path)[0].manifest.epoch
    assert run().stop_reason == "max_epochs"
    (saved,) = checkpoints(tmp_path)
    assert (saved.path.name, saved.manifest.epoch) == ("iteration-0000000003", 1)


def test_a_checkpoint_with_a_note_in_it_keeps_its_place(tmp_path):
    engine = Engine(lambda state, batch: None)
    handler = Checkpoint(tmp_path, when=BOTH | Events.ITERATION_COMPLETED, background=False)
    engine.add(handler)

    @engine.on(Events.EPOCH_COMPLETED)
    def note(state):
        (tmp_path / "iteration-0000000003/note.txt").write_text("mine")

    engine.run("abc", max_epochs=1)
    assert (tmp_path / "iteration-0000000003/note.txt").read_text() == "mine"
    assert checkpoints(tmp_path)[-1].path.name == "iteration-0000000003.2"


def test_a_manifest_says_when_why_and_how_well(tmp_path):
    engine = scoring([0.25], Checkpoint(tmp_path))
    engine.run("abc", max_epochs=1)
    (saved,) = checkpoints(tmp_path)
    manifest = saved.manifest
    assert (manifest.iteration, manifest.step, manifest.epoch) == (3, 0, 1)
    assert manifest.metrics == {"score": 0.25}
    assert manifest.keep == "latest(2)"
    assert manifest.world_size == 1
    assert manifest.versions["torch"] == torch.__version__


def test_a_broken_one_is_passed_over_and_counts_for_nothing_afterwards(tmp_path, caplog):
    whole = Script(()).run()
    keep = best(1, "loss", mode="max") | latest(2)
    Script((Checkpoint(tmp_path, keep=latest(9)),)).run(max_epochs=2)
    broken = checkpoints(tmp_path)[-1].path
    with (broken / "train.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    script = Script((Checkpoint(tmp_path, keep=keep, resume=True),), seed=3)
    with caplog.at_level(logging.WARNING, "camshaft"):
        assert equal(script.run(), whole)
    assert f"{broken} is broken and passed over" in caplog.text
    assert "train.safetensors is damaged" in caplog.text
    assert broken.exists()
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) >= 3


@pytest.mark.parametrize("resume", [True, "latest", "best"])
def test_where_there_is_none_yet_the_run_starts(tmp_path, resume):
    handler = Checkpoint(tmp_path / "new", keep=best(1, "score"), resume=resume)
    assert scoring([0.1], handler).run("ab", max_epochs=1).epoch == 1


def test_a_start_without_the_checkpoint_that_latest_names_is_told(tmp_path, caplog):
    scoring([0.1], Checkpoint(tmp_path / "run")).run("ab", max_epochs=1)
    (tmp_path / "copy").mkdir()
    for file in filter(Path.is_file, (tmp_path / "run").iterdir()):  # as `cp run/* copy` does
        shutil.copy(file, tmp_path / "copy")
    assert not caplog.records
    for _ in range(2):  # the second one goes on
        scoring([0.1], Checkpoint(tmp_path / "copy", resume=True)).run("ab", max_epochs=1)
        said = caplog.text
        assert said.count(f"{tmp_path / 'copy' / 'LATEST'} names iteration-0000000002, which") == 1


def test_a_directory_whose_name_safetensors_cannot_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not UTF-8, where safetensors reads no file; rename"):
        Checkpoint(tmp_path / os.fsdecode(b"caf\xe9"))


@pytest.mark.parametrize("resume", [None, False])
def test_without_resume_a_new_run_does_not_touch_the_checkpoints_of_another(tmp_path, resume):
    scoring([0.1] * 3, Checkpoint(tmp_path)).run("ab", max_epochs=3)
    before = numbers(tmp_path)
    with pytest.raises(FileExistsError, match="pass resume=True to go on with it, start_over=True"):
        scoring([0.1], Checkpoint(tmp_path, resume=resume)).run("ab", max_epochs=1)
    assert numbers(tmp_path) == before == [4, 6]


def test_a_run_that_starts_over_moves_the_checkpoints_of_the_earlier_one_aside(tmp_path, caplog):
    for number in range(3):
        engine = scoring([number] * 3, Checkpoint(tmp_path, start_over=True))
        with caplog.at_level(logging.WARNING, "camshaft"):
            state = engine.run("ab", max_epochs=3)
        engine.run("ab", max_epochs=3, state=state)  # a state that is carried on is not new
    assert scores_of(tmp_path) == [2, 2]
    assert [scores_of(tmp_path / f"earlier.{number}") for number in (1, 2)] == [[0, 0], [1, 1]]
    assert (tmp_path / "earlier.2/LATEST").read_text() == "iteration-0000000006\n"
    assert checkpoints(tmp_path / "earlier.1").latest().manifest.epoch == 3
    assert f"are in {tmp_path / 'earlier.2'}" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir())[-3:] == [
        "earlier.2",
        "iteration-0000000004",
        "iteration-0000000006",
    ]


def numbered(*handlers):
    """An engine whose model's weight is the number of the iteration."""
    model = nn.Linear(1, 1, bias=False)

    def step(state, batch):
        with torch.no_grad():
            model.weight.fill_(float(state.iteration))

    return Engine(step, *handlers, objects={"model": model})


def test_only_one_checkpoint_of_an_engine_resumes(tmp_path):
    both = [Checkpoint(tmp_path / name, resume=True) for name in ("a", "b")]
    with pytest.raises(ValueError, match=r"2 handlers have resume=.*'.*a'.*'.*b'.*to one of them"):
        numbered(*both).run([1], max_epochs=1)
    assert not checkpoints(tmp_path / "a")


@pytest.mark.parametrize("order", [1, -1])
def test_a_checkpoint_beside_one_that_resumes_goes_on_saving_whatever_their_order(tmp_path, order):
    def run(until):
        often = Events.ITERATION_COMPLETED
        main = Checkpoint(tmp_path / "main", when=often, resume=True)
        rare = Checkpoint(tmp_path / "rare", when=often(every=2), keep=every(2))
        return numbered(*[main, rare][::order]).run(range(9), max_iterations=until)

    run(3)
    assert run(6).iteration == 6
    assert [each.manifest.iteration for each in checkpoints(tmp_path / "rare")] == [2, 4, 6]
    shutil.rmtree(tmp_path / "main")  # so a new run begins, where another one has left checkpoints
    with pytest.raises(FileExistsError, match="rare holds checkpoints of an earlier run"):
        run(9)


def test_to_start_over_and_to_resume_contradict_each_other(tmp_path):
    with pytest.raises(ValueError, match="start_over=True and resume='latest' contradict"):
        Checkpoint(tmp_path, resume="latest", start_over=True)


def test_a_state_that_is_carried_on_needs_no_resume(tmp_path):
    engine = scoring([0.1] * 3, Checkpoint(tmp_path))
    state = engine.run("ab", max_epochs=1)
    engine.run("ab", max_epochs=2, state=state)
    assert numbers(tmp_path) == [2, 4]


def test_an_epoch_that_is_stopped_is_stopped_after_a_resume_too(tmp_path):
    def run(directory, max_iterations):
        ends = []
        at_4 = Events.ITERATION_COMPLETED(at=4)
        engine = Engine(lambda state, batch: None, Checkpoint(directory, when=at_4, resume=True))
        engine.on(at_4)(lambda state: state.stop_epoch())
        engine.on(Events.EPOCH_COMPLETED)(lambda state: ends.append(state.iteration))
        if max_iterations == 4:
            engine.on(Events.EPOCH_COMPLETED)(lambda state: 1 / 0)  # dies right after the save
        with suppress(ZeroDivisionError):
            engine.run(range(10), max_iterations=max_iterations)
        return ends

    assert run(tmp_path / "parts", 4) == [4]
    assert run(tmp_path / "parts", 24) == run(tmp_path / "whole", 24) == [4, 14, 24]


def test_a_model_that_does_not_fit_is_an_error_and_stays_as_it_was(tmp_path):
    scoring([0.1], Checkpoint(tmp_path)).run("ab", max_epochs=1)
    model = nn.Linear(2, 1)
    before = model.weight.clone()
    engine = Engine(lambda state, batch: None, objects={"model": model, "ema": nn.Linear(1, 1)})
    engine.add(Checkpoint(tmp_path, resume=True))
    with pytest.raises(ValueError, match=r"cannot load .*iteration-0000000002: it does not fit"):
        engine.run("ab", max_epochs=1)
    assert torch.equal(model.weight, before)


def test_a_finished_run_started_again_does_nothing_and_one_with_higher_limits_goes_on(tmp_path):
    whole = Script(()).run(max_epochs=3)
    Script((Checkpoint(tmp_path),)).run(max_epochs=2)
    script = Script((Checkpoint(tmp_path, resume=True),), seed=5)
    script.run(max_epochs=2)
    assert script.state.stop_reason == "max_epochs"
    assert numbers(tmp_path) == [4, 8]
    assert equal(Script((Checkpoint(tmp_path, resume=True),), seed=6).run(max_epochs=3), whole)


def test_a_run_that_was_stopped_for_good_stays_stopped(tmp_path):
    handlers = (EarlyStopping("score", patience=1), Checkpoint(tmp_path, resume=True))
    state = scoring([0.1, 0.2, 0.0, 0.0], *handlers).run("ab", max_epochs=4)
    assert state.epoch == 2
    handlers = (EarlyStopping("score", patience=1), Checkpoint(tmp_path, resume=True))
    again = scoring([0.1, 0.2, 0.0, 0.0], *handlers).run("ab", max_epochs=4)
    assert (again.epoch, again.iteration) == (2, 4)
    assert str(again.stop_reason).startswith("early stopping: score has not improved")


def test_a_run_that_carries_on_a_given_state_loads_nothing(tmp_path):
    scoring([0.1] * 3, Checkpoint(tmp_path)).run("ab", max_epochs=3)
    engine = scoring([0.1] * 5, Checkpoint(tmp_path / "other"))
    state = engine.run("ab", max_epochs=1)
    engine.add(Checkpoint(tmp_path, resume=True))
    assert engine.run("ab", state=state, max_epochs=2).epoch == 2


def test_validation_and_evaluation_neither_save_nor_load(tmp_path):
    data = [(INPUTS[:3], INPUTS[:3, :1])]
    script = Script((Validate(data), Checkpoint(tmp_path, keep=best(1, "val/loss"), resume=True)))
    script.run(max_epochs=1)
    script.engine.evaluate(data)
    assert len(checkpoints(tmp_path)) == 1
    assert "val/loss" in checkpoints(tmp_path)[0].manifest.metrics


def test_what_cannot_be_saved_ends_the_run_by_name_and_leaves_the_older_ones(tmp_path):
    engine = scoring([0.1] * 3, Checkpoint(tmp_path))
    engine.on(Events.EPOCH_COMPLETED(at=2))(lambda state: state.metrics.update(plot=object()))
    with pytest.raises(TypeError, match=r"run\.0\.metrics\.values\.plot is a builtins\.object"):
        engine.run("ab", max_epochs=3)
    assert numbers(tmp_path) == [2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "iteration-0000000002"]


def test_an_object_that_cannot_be_saved_is_told_before_the_run_begins(tmp_path):
    engine = Engine(lambda state, batch: None, Checkpoint(tmp_path))
    engine.objects["extra"] = 3  # those of Engine(objects=...) are refused there
    begun = []
    engine.on(Events.STARTED)(begun.append)
    with pytest.raises(TypeError, match=r"engine.objects\['extra'\] is a int, which a checkpoint"):
        engine.run([1], max_epochs=1)
    assert begun == []


def test_a_handler_that_is_new_in_the_script_starts_with_an_empty_memory(tmp_path):
    scoring([0.1] * 3, Checkpoint(tmp_path)).run("ab", max_epochs=1)
    engine = scoring([0.1] * 3, Checkpoint(tmp_path, resume=True))
    engine.on(Events.ITERATION_COMPLETED)(lambda state: state.metrics.update(loss=torch.ones(())))
    engine.add(Diary())
    state = engine.run("ab", max_epochs=2)
    assert len(state.memory.saved["Diary"].losses) == 2


def test_a_handler_is_a_value_that_knows_no_run(tmp_path):
    handler = Checkpoint(tmp_path, keep=latest(9))
    engine = scoring([0.1] * 3, handler)
    state = engine.run("ab", max_epochs=1)
    handler.save(State())
    engine.run("ab", max_epochs=2, state=state)
    assert numbers(tmp_path) == [2, 4]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"keep": 2}, TypeError, r"keep=2: needs latest\(\.\.\.\), best"),
        ({"resume": "best"}, ValueError, r"resume='best' needs one best\(\.\.\.\) in keep"),
        ({"resume": "latst"}, FileNotFoundError, "to be True, 'latest', 'best', or the path"),
        ({"resume": __file__}, FileNotFoundError, "no directory is at this path"),
        ({"override": "optimizer.lr"}, TypeError, r"needs a list of names, such as \['optimizer"),
        ({"override": [Path("lr")]}, TypeError, "needs a list of names"),
        (
            {"resume": "best", "keep": best(1, "a") | best(1, "b")},
            ValueError,
            "needs one best",
        ),
    ],
    ids=["keep", "best without a claim", "typo", "a file", "a string", "no strings", "two claims"],
)
def test_what_cannot_be_meant_is_refused_when_the_handler_is_made(arguments, error, says):
    with pytest.raises(error, match=says):
        Checkpoint("runs", **arguments)


RANKS = """
import json
import os
import sys
import ignite.distributed as idist
import torch
from torch import nn
from camshaft import Engine, Events
from camshaft.handlers.checkpoint import Checkpoint

directory, stop_at = sys.argv[1], int(sys.argv[2])
idist.initialize("gloo")
rank = idist.get_rank()
torch.manual_seed(0)
model, drawn = nn.Linear(1, 1), []
torch.manual_seed(rank)
engine = Engine(lambda state, batch: drawn.append(torch.rand(1).item()), objects={"model": model})
engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED, resume=True))

@engine.on(Events.SAVING)
def fail(state):
    if state.iteration == 5 and rank == 1:
        state.metrics["bad"] = object()

said = None
try:
    engine.run([1, 2, 3], max_iterations=stop_at)
except Exception as error:
    said = f"{type(error).__name__}: {error}"
print(json.dumps({"drawn": drawn, "weight": model.weight.item(), "said": said}), flush=True)
idist.barrier()
os._exit(0)  # gloo's threads sometimes abort a process that ends in the usual way
"""


def test_on_two_ranks_one_writes_each_goes_on_with_its_own_numbers_and_errors_are_shared(
    processes, tmp_path
):
    def on_two_ranks(directory, stop_at):
        results = processes.run_ranks(2, RANKS, directory, stop_at)
        return [json.loads(each.stdout) for each in results]

    whole = on_two_ranks(tmp_path / "whole", 4)
    on_two_ranks(tmp_path / "parts", 2)
    assert [each.manifest.world_size for each in checkpoints(tmp_path / "parts")] == [2, 2]
    first, second = parts = on_two_ranks(tmp_path / "parts", 6)
    for rank in range(2):
        assert parts[rank]["drawn"][:2] == whole[rank]["drawn"][2:]
        assert parts[rank]["weight"] == whole[0]["weight"]
    assert first["drawn"] != second["drawn"]
    assert first["said"] == (
        "AnotherRankError: another rank could not take part in a checkpoint; its own error says why"
    )
    assert second["said"].startswith("TypeError: run.1.metrics.values.bad is a builtins.object")
    assert numbers(tmp_path / "parts") == [3, 4]


def test_a_run_whose_weights_would_not_be_saved_is_refused(tmp_path):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], 0.1)
    engine = Engine(lambda state, batch: None, Update(optimizer), Checkpoint(tmp_path))
    with pytest.raises(ValueError, match="SGD, which an Update steps, is not among the engine"):
        engine.run([1], max_epochs=1)
    engine.objects["optimizer"] = optimizer
    assert engine.run([1], max_epochs=1).stop_reason == "max_epochs"


def test_a_run_without_any_objects_is_told_of(tmp_path, caplog):
    Engine(lambda state, batch: None, Checkpoint(tmp_path)).run([1], max_epochs=1)
    assert "saves the state of the run and no model: the engine has no objects" in caplog.text


def test_a_score_of_the_end_of_the_epoch_is_not_missed_in_the_first_one(tmp_path, caplog):
    engine = Engine(lambda state, batch: None, objects={"model": torch.nn.Linear(1, 1)})
    when = Events.ITERATION_COMPLETED | Events.EPOCH_COMPLETED
    engine.add(Checkpoint(tmp_path, when=when, keep=best(1, "score")))

    @engine.on(Events.EPOCH_COMPLETED)
    def score(state):
        state.metrics["score"] = 1.0

    engine.run([1, 2], max_epochs=2)
    assert "which no handler has produced" not in caplog.text


@pytest.mark.parametrize("limit", ["max_iterations", "max_steps", "max_epochs"])
def test_a_run_that_is_beyond_a_lower_limit_trains_nothing(tmp_path, limit):
    def step(state, batch):
        state.fire(Events.STEP_COMPLETED)
        batches.append(batch)

    def engine():
        return Engine(step, Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED, resume=True))

    batches = []
    first = engine()
    first.on(Events.ITERATION_COMPLETED(at=6))(lambda state: state.interrupt("away"))
    first.run(range(4), max_epochs=9)
    state = engine().run(range(4), **{limit: 1})
    assert (len(batches), state.iteration, state.step) == (6, 6, 6)


def test_a_finished_run_with_a_lower_limit_leaves_the_generators_as_it_did(tmp_path):
    def drawn(seed, max_epochs):
        return Script((Checkpoint(tmp_path, resume=True),), seed).run(max_epochs=max_epochs)["next"]

    assert equal(drawn(1, max_epochs=3), drawn(2, max_epochs=2))
