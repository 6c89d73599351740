"""Runs that are changed from outside: at a commit point, once, and again after a kill."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau, StepLR

from camshaft import Events, supervised
from camshaft.__main__ import main
from camshaft.handlers import (
    Checkpoint,
    Journal,
    LRSchedule,
    Mirror,
    ReplayCheck,
    Steering,
    StopOnSignal,
    Validate,
    checkpoints,
    latest,
)
from camshaft.handlers.schedules import cosine, warmup

INPUTS = torch.arange(48.0).reshape(24, 2) / 48
DATA = [(INPUTS[i : i + 2], INPUTS[i : i + 2, :1]) for i in range(0, 24, 2)]


class KilledError(Exception):
    """Ends a run as a kill does: behind it, only what is on the disk counts."""


def ask(directory, *words):
    """Ask by the command, in a thread, whose answer nobody waits for; return when it has asked."""
    folder = directory / "steering"
    thread = threading.Thread(target=main, args=(["set", str(directory), *words],), daemon=True)
    thread.start()
    while not [*folder.glob("asked-*.json")] and thread.is_alive():
        time.sleep(0.001)
    return thread


def training(directory, *handlers, accumulate=1):
    """A run that saves every 5 iterations."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss, accumulate=accumulate)
    saves = Checkpoint(
        directory, when=Events.ITERATION_COMPLETED(every=5), keep=latest(9), resume=True
    )
    engine.add(*(each() for each in handlers), saves)
    return engine.add(Steering(directory, interval=1e-9))


def outcome(engine, state):
    weights = [each.tolist() for each in engine.objects["model"].parameters()]
    groups = [
        {k: g[k] for k in g if k != "params"} for g in engine.objects["optimizer"].param_groups
    ]
    return repr((weights, groups, state.iteration, state.step, state.epoch, state.stop_reason))


def steered(directory, make, asked, kills=(), data=lambda: DATA, **limits):
    """Run to the end, with kills at the beginning of these iterations; the outcome.

    `asked` has by iteration the words of a command that is given while it is under way.
    """
    threads, left, first = [], [*kills], True
    while True:
        engine = make(directory)
        if first:
            for iteration, words in asked.items():
                engine.on(Events.ITERATION_STARTED(at=iteration))(
                    lambda state, words=words: threads.append(ask(directory, *words))
                )
        if left:

            @engine.on(Events.ITERATION_STARTED(at=left.pop(0)))
            def kill(state):
                raise KilledError

        first = False
        torch.manual_seed(0 if not (directory / "LATEST").exists() else 99)
        with suppress(KilledError):
            state = engine.run(data(), **limits)
            for each in threads:
                each.join(60)
            return outcome(engine, state)


def ledger(directory):
    return [*map(json.loads, (directory / "steering/ledger.jsonl").read_text().splitlines())]


def changes(directory):
    return [(row["set"], row["iteration"]) for row in ledger(directory)]


def with_ledger_of(directory, place):
    """An empty directory but for the ledger of another run."""
    shutil.copytree(directory / "steering", place / "steering")
    return place


PIECES = partial(LRSchedule, warmup(4).then(cosine(final=0.1)))
PLATEAU = partial(
    LRSchedule,
    lambda optimizer: ReduceLROnPlateau(optimizer, patience=0),
    metric="loss",
    when=Events.ITERATION_COMPLETED(every=3),
)
FUNCTION = partial(
    LRSchedule, lambda optimizer, horizon: CosineAnnealingLR(optimizer, T_max=horizon.steps)
)
EPOCHS, LONG = {"max_epochs": 3}, {"max_iterations": 18}
CASES = {
    "rate": ((), 1, EPOCHS, ["optimizer.lr=0.01", "max_steps=31"]),
    "base": ([PIECES], 1, EPOCHS, ["optimizer.initial_lr=0.01"]),
    "windows": ([PIECES], 2, EPOCHS, ["Update.accumulate=3"]),
    "fewer windows": ([FUNCTION], 4, EPOCHS, ["Update.accumulate=1"]),
    "epochs": ([PIECES], 1, EPOCHS, ["max_epochs=4"]),
    "epochs of a function": ([FUNCTION], 2, EPOCHS, ["max_epochs=4"]),
    "fewer epochs": ([PIECES], 3, EPOCHS, ["max_epochs=2"]),
    "an epoch that is over": ([PIECES], 1, EPOCHS, ["max_epochs=1"]),
    "steps": ([PIECES], 2, EPOCHS, ["max_steps=9"]),
    "a limit more": ([PIECES], 1, EPOCHS, ["max_iterations=20"]),
    "fewer iterations": ([PIECES], 1, LONG, ["max_iterations=17"]),
    "more iterations": ([PIECES], 1, LONG, ["max_iterations=22"]),
    "iterations of one epoch": (
        [PIECES],
        2,
        {"max_iterations": 18, "epoch_length": 99},
        ["max_iterations=22"],
    ),
    "fewer of one epoch": (
        [PIECES],
        2,
        {"max_iterations": 19, "epoch_length": 99},
        ["max_iterations=17"],
    ),
    "plateau": ([PLATEAU], 1, EPOCHS, ["optimizer.lr=0.5"]),
    "save": ((), 1, EPOCHS, ["save"]),
    "steps computed twice": ([partial(ReplayCheck, every=3)], 1, EPOCHS, ["optimizer.lr=0.01"]),
}


@pytest.mark.quick(case=5, at=2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("at", [(), ("--at", "+4"), ("--at", "14")], ids=repr)
def test_a_run_that_is_killed_is_changed_at_the_same_place_to_the_last_bit(tmp_path, case, at):
    handlers, accumulate, limits, words = CASES[case]
    make = partial(training, accumulate=accumulate)
    asked = {8: [*words, *at]}

    def run(name, kills=(), asked=asked):
        return steered(tmp_path / name, lambda d: make(d, *handlers), asked, kills, **limits)

    whole = run("whole")
    ((what, iteration),) = changes(tmp_path / "whole")
    assert iteration == {(): 8, ("--at", "+4"): 12}.get(at, 14)
    assert [*what] == [word.partition("=")[0] for word in words]
    assert run("killed", [9, 13, 16, 19]) == whole
    # from the beginning, by the ledger alone
    with_ledger_of(tmp_path / "killed", tmp_path / "replayed")
    assert run("replayed", [14], asked={}) == whole
    unsteered = run("other", asked={})
    assert (unsteered == whole) == (case == "save")


def command(capsys, *words):
    """The exit code of `camshaft set`, and what it has printed and complained of."""
    code = main(["set", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def run_of(directory, words, at=3, handlers=(), data=DATA, accumulate=1, **limits):
    """Run, with a command in one iteration; the engine, its state, and the exit code."""
    engine, codes = training(directory, *handlers, accumulate=accumulate), []

    @engine.on(Events.ITERATION_STARTED(at=at))
    def ask_in_another_thread(state):
        told = lambda: codes.append(main(["set", str(directory), *words]))  # noqa: E731
        thread = threading.Thread(target=told, daemon=True)
        thread.start()
        while not [*(directory / "steering").glob("asked-*.json")] and thread.is_alive():
            time.sleep(0.001)
        codes.append(thread)

    state = engine.run(data, **(limits or {"max_epochs": 2}))
    codes.pop(0).join(60)
    return engine, state, codes[0]


def test_a_stop_saves_and_the_resumed_run_goes_on_and_does_not_stop_again(tmp_path):
    _, state, code = run_of(tmp_path, ["stop"])
    assert (code, state.iteration, state.is_interrupted) == (0, 3, True)
    assert checkpoints(tmp_path).latest().manifest.iteration == 3
    assert training(tmp_path).run(DATA, max_epochs=2).iteration == 24


def test_a_script_that_moves_to_another_directory_is_steered_all_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    engine, threads = training("run"), []

    @engine.on(Events.ITERATION_COMPLETED(at=3))
    def move(state):
        threads.append(ask(tmp_path / "run", "stop"))
        (tmp_path / "elsewhere").mkdir()
        os.chdir(tmp_path / "elsewhere")

    assert engine.run(DATA, max_epochs=9).iteration == 4
    threads[0].join(60)
    assert changes(tmp_path / "run") == [({"stop": None}, 4)]


def test_a_save_is_made_at_once(tmp_path):
    run_of(tmp_path, ["save", "--at", "+1"])
    saved = [each.manifest for each in checkpoints(tmp_path)]
    assert [each.iteration for each in saved] == [4, 5, 10, 15, 20]
    assert saved[0].reason == "camshaft set"


def test_values_wait_until_no_accumulation_window_is_open(tmp_path):
    seen = []
    saw = lambda: Watch(seen)  # noqa: E731
    run_of(tmp_path, ["optimizer.lr=0.5"], handlers=[saw], accumulate=4)
    assert seen == [0.1] * 4 + [0.5] * 20
    assert changes(tmp_path) == [({"optimizer.lr": 0.5}, 3)]


class Watch:
    """Notes the rate with which each iteration begins."""

    def __init__(self, seen):
        self.seen = seen

    def attach(self, engine):
        engine.on(Events.ITERATION_STARTED)(self.note)

    def note(self, state):
        self.seen.append(state.engine.objects["optimizer"].param_groups[0]["lr"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["optimizer.rl=1"], "this run has no 'optimizer.rl' to set; did you mean 'optimizer.lr'?"),
        (["optimizer.lr=0.5", "max_epoch=3"], "did you mean 'max_epochs'?"),
        (["wings=1"], "; it has save, stop, max_epochs, max_iterations, max_steps, "),
        (["optimizer.lr=-1"], "optimizer.lr=-1: needs a number from 0; it is 0.1 now"),
        (["optimizer.lr"], "optimizer.lr: needs a number from 0; it is 0.1 now"),
        (["optimizer.lr=1" + "0" * 400], "needs a number from 0; it is 0.1 now"),
        (["Update.accumulate=0"], "Update.accumulate=0: needs a whole number from 1; it is 1 now"),
        (["Update.accumulate=2.5"], "Update.accumulate=2.5: needs a whole number from 1"),
        (["stop=1"], "stop=1: takes no value; write stop alone"),
        (["max_iterations=3"], "max_iterations=3: needs a whole number from 4"),
        (["max_iterations=9", "--at", "20"], "max_iterations=9: needs a whole number from 21"),
        (["max_epochs=0"], "max_epochs=0: needs a whole number from 1; it is 2 now"),
        (["optimizer.lr=1", "--at", "2"], "iteration 2 is over: the run is at iteration 3"),
    ],
)
def test_the_run_refuses_what_cannot_be_and_says_why_and_nothing_changes(
    tmp_path, capsys, caplog, words, said
):
    whole = training(tmp_path / "whole")
    whole = outcome(whole, whole.run(DATA, max_epochs=2))
    engine, state, code = run_of(tmp_path / "asked", words)
    assert code == 1
    told = capsys.readouterr().out
    assert told.startswith("refused: ")
    assert said in told
    assert said in caplog.text
    assert outcome(engine, state) == whole
    (row,) = ledger(tmp_path / "asked")
    assert said in row["refused"]
    assert row["by"]
    assert row["time"] > 0
    assert [*row["set"]] == [word.partition("=")[0] for word in words if word[:1].isalpha()]


def test_changes_that_become_due_together_are_made_in_the_order_of_their_iterations(tmp_path):
    rates = {}
    for accumulate in (1, 8):
        directory = tmp_path / str(accumulate)
        run_of(directory, ["optimizer.lr=0.5", "--at", "6"], max_iterations=3)
        run_of(directory, ["optimizer.lr=0.2", "--at", "5"], max_iterations=4, at=4)
        engine = training(directory, accumulate=accumulate)
        engine.run(DATA, max_epochs=2)
        rates[accumulate] = engine.objects["optimizer"].param_groups[0]["lr"]
    assert rates == {1: 0.5, 8: 0.5}


@pytest.mark.parametrize("value", ["fast", "nan", "1e999"])
def test_the_command_refuses_what_is_no_number_and_asks_for_nothing(tmp_path, capsys, value):
    training(tmp_path).run(DATA, max_epochs=1)
    code, _, error = command(capsys, tmp_path, f"optimizer.lr={value}")
    assert code == 1
    assert f"{value!r} is no number" in error
    assert not [*tmp_path.glob("steering/asked-*")]


def test_what_is_asked_for_while_no_process_runs_is_made_by_the_next_one(tmp_path):
    training(tmp_path).run(DATA, max_epochs=1)
    thread = ask(tmp_path, "optimizer.lr=0.5", "--at", "+2")
    engine = training(tmp_path)
    engine.run(DATA, max_epochs=2)
    thread.join(60)
    assert changes(tmp_path) == [({"optimizer.lr": 0.5}, 13)]
    assert engine.objects["optimizer"].param_groups[0]["lr"] == 0.5
    assert not [*tmp_path.glob("steering/asked-*")]


def test_where_nothing_can_be_steered_the_command_says_what_to_add(tmp_path, capsys):
    code, _, error = command(capsys, tmp_path, "save")
    assert code == 2
    assert f"its engine needs Steering('{tmp_path}')" in error


def test_the_journal_says_what_was_set_and_what_was_there_before(tmp_path, capsys):
    run_of(tmp_path, ["optimizer.lr=0.5", "max_epochs=3"], handlers=[partial(Journal, tmp_path)])
    assert capsys.readouterr().out == "optimizer.lr=0.5 max_epochs=3 after iteration 3\n"
    lines = map(json.loads, (tmp_path / "journal.jsonl").read_text().splitlines())
    (line,) = (each for each in lines if each["event"] == "set")
    assert line["set"] == {"optimizer.lr": 0.5, "max_epochs": 3}
    assert line["was"] == {"optimizer.lr": 0.1, "max_epochs": 2}
    assert (line["iteration"], "@" in line["by"]) == (3, True)


def test_a_rate_that_a_schedule_sets_is_refused_with_what_to_set(tmp_path, capsys):
    run_of(tmp_path / "pieces", ["optimizer.lr=1"], handlers=[PIECES])
    said = capsys.readouterr().out
    assert "set optimizer.initial_lr, which the schedule multiplies" in said
    ready = partial(LRSchedule, lambda optimizer: StepLR(optimizer, 5))
    run_of(tmp_path / "torch", ["optimizer.lr=1"], handlers=[ready])
    said = capsys.readouterr().out
    assert "the schedule 'scheduler' sets it at each step; a schedule of pieces, such as" in said


@pytest.mark.parametrize("odd", ["writable", "link", "pipe", "text"])
def test_a_request_that_others_may_have_written_is_not_followed(tmp_path, caplog, odd):
    training(tmp_path).run(DATA, max_epochs=1)
    folder = tmp_path / "steering"
    told = {"set": {"optimizer.lr": 0.5}, "at": "", "by": "somebody", "time": 0.0}
    file = (folder / "asked-1.json") if odd != "link" else tmp_path / "elsewhere.json"
    if odd == "pipe":
        os.mkfifo(file)
    else:
        file.write_text(json.dumps(told) if odd != "text" else "not JSON")
        file.chmod(0o666 if odd == "writable" else 0o600)
    if odd == "link":
        (folder / "asked-1.json").symlink_to(file)
    engine = training(tmp_path)
    state = engine.run(DATA, max_epochs=2)
    assert engine.objects["optimizer"].param_groups[0]["lr"] == 0.1
    assert state.iteration == 24
    assert changes(tmp_path) == [({}, 11)]
    said = {
        "writable": "only that user may write to it",
        "link": "is not a regular file but a link",
        "pipe": "is not a regular file but a pipe",
        "text": "is not JSON",
    }
    assert said[odd] in caplog.text


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to chown")
def test_a_request_of_another_user_is_not_followed(tmp_path, caplog):
    training(tmp_path).run(DATA, max_epochs=1)
    file = tmp_path / "steering/asked-1.json"
    file.write_text('{"set": {"stop": null}, "at": "", "by": "me", "time": 0.0}')
    file.chmod(0o600)
    os.chown(file, 12345, 12345)
    assert training(tmp_path).run(DATA, max_epochs=2).iteration == 24
    assert "it belongs to user 12345" in caplog.text


def test_a_ledger_that_a_run_cannot_repeat_any_more_is_refused(tmp_path):
    run_of(tmp_path / "one", ["optimizer.lr=0.5"])
    training(tmp_path / "two").run(DATA, max_epochs=1)
    shutil.copy(tmp_path / "one/steering/ledger.jsonl", tmp_path / "two/steering")
    with pytest.raises(
        ValueError, match=r"after iteration 3, and this run goes on after iter.* 10"
    ):
        training(tmp_path / "two").run(DATA, max_epochs=2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"rows": []}\n', r"line 1 of .* is not what camshaft set writes: it needs by, time, set"),
        (None, r"line 2 of .* is not JSON"),  # as a copy that was cut off
    ],
)
def test_a_ledger_that_is_none_or_is_torn_is_refused(tmp_path, text, said):
    run_of(tmp_path / "one", ["optimizer.lr=0.5"])
    file = with_ledger_of(tmp_path / "one", tmp_path / "two") / "steering/ledger.jsonl"
    file.write_text(text or file.read_text() + file.read_text()[:40])
    with pytest.raises(ValueError, match=said):
        training(tmp_path / "two").run(DATA, max_epochs=1)


def test_a_ledger_with_names_that_the_run_does_not_have_is_refused(tmp_path):
    run_of(tmp_path / "one", ["optimizer.lr=0.5"])
    with_ledger_of(tmp_path / "one", tmp_path / "two")
    with pytest.raises(ValueError, match=r"optimizer.lr cannot be set: the schedule 'scheduler'"):
        training(tmp_path / "two", PIECES).run(DATA, max_epochs=1)


def test_a_run_whose_ledger_was_removed_writes_what_it_has_made(tmp_path):
    run_of(tmp_path, ["optimizer.lr=0.5"], max_iterations=5)
    before = ledger(tmp_path)
    shutil.rmtree(tmp_path / "steering")
    engine = training(tmp_path)
    engine.run(DATA, max_epochs=1)
    assert ledger(tmp_path) == before
    assert engine.objects["optimizer"].param_groups[0]["lr"] == 0.5


def test_a_script_that_gives_another_limit_after_it_was_set_has_its_own(tmp_path):
    def killed(directory):
        with suppress(KilledError):
            engine = training(directory)
            engine.on(Events.ITERATION_STARTED(at=3))(lambda state: ask(directory, "max_epochs=4"))
            engine.on(Events.ITERATION_STARTED(at=8))(kill)
            engine.run(DATA, max_epochs=2)

    def kill(state):
        raise KilledError

    killed(tmp_path / "same")
    assert training(tmp_path / "same").run(DATA, max_epochs=2).epoch == 4
    killed(tmp_path / "other")
    assert training(tmp_path / "other").run(DATA, max_epochs=3).epoch == 3


def test_a_run_of_no_checkpoint_makes_the_changes_of_its_ledger_again_and_says_so(tmp_path, caplog):
    run_of(tmp_path, ["optimizer.lr=0.5"], max_iterations=4)
    engine = training(tmp_path)
    engine.run(DATA, max_epochs=1)
    assert engine.objects["optimizer"].param_groups[0]["lr"] == 0.5
    assert "Steering sets again what its ledger has for iterations 3" in caplog.text


def test_an_iteration_looks_at_no_file_between_two_looks(processes, tmp_path):
    script = """
        import sys
        from camshaft import Engine
        from camshaft.handlers import Steering
        looks = []
        sys.addaudithook(lambda event, about: event in ("os.scandir", "os.listdir") and
                         "steering" in str(about[0]) and looks.append(event))
        for interval in (3600, 1e-9):
            Engine(lambda state, batch: None, Steering(sys.argv[1], interval=interval)).run(
                range(1000), max_epochs=1)
            print(len(looks))
    """
    rare, often = map(int, processes.run(script, tmp_path).stdout.split())
    assert rare == 0
    assert often >= 1000


def test_a_second_steering_is_refused(tmp_path):
    with pytest.raises(ValueError, match="this engine has a Steering already"):
        training(tmp_path).add(Steering(tmp_path / "other"))
    with pytest.raises(ValueError, match="needs seconds greater than 0"):
        Steering(tmp_path, interval=0)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_run_that_is_stopped_in_a_validation_is_changed_in_that_iteration(tmp_path, is_first):
    def make(directory):
        check = partial(Validate, DATA[:2], when=Events.ITERATION_COMPLETED(at=12))
        engine = training(directory) if is_first else training(directory, check)
        return engine.add(*[check()] * is_first, StopOnSignal())

    def run(name, killed):
        engine = make(tmp_path / name)
        engine.on(Events.ITERATION_STARTED(at=8))(
            lambda state: ask(tmp_path / name, "optimizer.lr=0.5", "--at", "12")
        )
        if killed:
            engine.evaluation.on(Events.ITERATION_COMPLETED(at=1))(
                lambda state: signal.raise_signal(signal.SIGTERM)
            )
            with pytest.raises(SystemExit):
                engine.run(DATA, max_epochs=2)
            assert checkpoints(tmp_path / name).latest().manifest.iteration == 12
            engine = make(tmp_path / name)
        return outcome(engine, engine.run(DATA, max_epochs=2))

    assert run("killed", True) == run("whole", False)


@pytest.mark.slow
def test_a_machine_with_an_empty_disk_gets_the_ledger_from_the_store(tmp_path):
    pytest.importorskip("fsspec", reason='needs pip install "camshaft[mirror]"')
    store = partial(Mirror, f"file:{tmp_path}/store")
    run_of(tmp_path / "run", ["optimizer.lr=0.5", "--at", "14"], handlers=[store], max_iterations=9)
    shutil.rmtree(tmp_path / "run")
    engine = training(tmp_path / "run", store)
    engine.run(DATA, max_iterations=20)
    assert changes(tmp_path / "run") == [({"optimizer.lr": 0.5}, 14)]
    assert engine.objects["optimizer"].param_groups[0]["lr"] == 0.5


ON_OWN_DISKS = """
    import os, sys
    import torch
    from camshaft import Engine, Events, ranks
    from camshaft.handlers import Checkpoint, Journal, Steering

    os.environ["LOCAL_RANK"] = "0"  # each rank is on a host of its own
    torch.distributed.init_process_group("gloo")
    place, end = sys.argv[1], int(sys.argv[2])
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    seen = []
    engine = Engine(
        lambda state, batch: seen.append(optimizer.param_groups[0]["lr"]),
        Checkpoint(f"{place}/run", resume=True),
        Journal(f"{place}/run"),
        Steering(f"{place}/disk-{ranks.rank()}", interval=1e-9),
        objects={"optimizer": optimizer},
    )
    engine.run(range(12), max_iterations=end)
    print(seen)
"""


@pytest.mark.slow
def test_a_change_outlives_the_disk_of_rank_0_where_hosts_share_none(processes, tmp_path):
    processes.run_ranks(2, ON_OWN_DISKS, tmp_path, 2)
    thread = ask(tmp_path / "disk-0", "optimizer.lr=0.5", "--at", "6")
    processes.run_ranks(2, ON_OWN_DISKS, tmp_path, 4)
    thread.join()
    shutil.rmtree(tmp_path / "disk-0")
    for result in processes.run_ranks(2, ON_OWN_DISKS, tmp_path, 8):
        assert result.stdout == "[0.1, 0.1, 0.5, 0.5]\n"
    assert changes(tmp_path / "disk-0") == [({"optimizer.lr": 0.5}, 6)]
    assert (tmp_path / "run/journal.jsonl").read_text().count('"event": "set"') == 1


def test_diff_shows_what_was_set_in_one_run_alone(tmp_path, capsys):
    run_of(tmp_path / "one", ["optimizer.lr=0.5"])
    run_of(tmp_path / "two", ["optimizer.lr=0.25", "--at", "4"])
    capsys.readouterr()
    assert main(["diff", str(tmp_path / "one"), str(tmp_path / "two")]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["ledger", "3", "optimizer.lr", "0.5", "-"] in lines
    assert ["ledger", "4", "optimizer.lr", "-", "0.25"] in lines


SCRIPT = """\
import torch
from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, Fingerprints, ReplayCheck, Steering, latest

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
engine = supervised(model, torch.optim.Adam(model.parameters(), 0.1), torch.nn.functional.mse_loss)
saves = Events.ITERATION_COMPLETED(every=5)
engine.add(Checkpoint("run", when=saves, keep=latest(9), resume=True), ReplayCheck(every=4))
engine.add(Fingerprints("run/fingerprints.jsonl"), Steering("run", interval=1e-9))
engine.run([(torch.ones(3, 2), torch.ones(3, 1))] * 12, max_epochs=1)
"""


@pytest.mark.slow
def test_a_step_behind_a_change_that_no_checkpoint_has_is_computed_again(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    (tmp_path / "train.py").write_text(SCRIPT)
    run_of(tmp_path / "other", ["optimizer.lr=0.5", "--at", "7"])
    with_ledger_of(tmp_path / "other", tmp_path / "run")
    subprocess.run([sys.executable, "train.py"], check=True)
    capsys.readouterr()
    assert main(["replay", "run", "--iteration", "9", "--", sys.executable, "train.py"]) == 0
    assert "run/fingerprints.jsonl: the same" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "run/steering")
    assert main(["replay", "run", "--iteration", "9", "--", sys.executable, "train.py"]) == 1


def test_a_parameter_group_that_the_script_adds_later_has_its_rate_again_after_a_kill(tmp_path):
    def make(directory):
        engine = training(directory)
        optimizer = engine.objects["optimizer"]

        @engine.on(Events.ITERATION_STARTED(at=6))
        def unfreeze(state):
            optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 0.2})

        return engine

    def run(name, kills=()):
        asked = {8: ["optimizer[1].lr=0.5", "--at", "9"]}
        return steered(tmp_path / name, make, asked, kills, max_iterations=9)

    assert "'lr': 0.5" in (whole := run("whole"))
    assert run("killed", [9]) == whole
