"""The example of two processes, of which either one is killed at any time."""

import random
import signal
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from camshaft.handlers.checkpoint import checkpoints

from .runs import check_same_run, rows_of

ELSEWHERE = Path(__file__).parents[2] / "examples" / "elsewhere.py"
EPOCH = 23


@pytest.fixture(scope="module")
def tasks(processes):
    """Starts the training, on some ranks, or the evaluation: all processes of it."""

    def start(task, directory, *arguments, ranks=1, store=None, **options):
        if store is not None:
            arguments += ("--store", f"file:{store}", "--interval", 0.1)
            directory = directory if task == "train" else directory / "nowhere"
        command = (ELSEWHERE, task, "--directory", directory, *arguments)
        if task == "evaluate" or ranks == 1:
            return [processes.start(*command, **options)]
        return processes.start_ranks(ranks, *command, **options)

    return start


@contextmanager
def ended(started):
    """Processes that are killed at the end, if they are still there."""
    with ExitStack() as stack:
        for each in started:
            stack.enter_context(each)
        try:
            yield started
        finally:
            for each in started:
                each.kill()


def run(tasks, directory, *arguments, draw=None, kills=0, **options):
    """Run both to their ends, and kill one at random now and then; how often that was."""
    running, killed = {}, 0
    with ExitStack() as stack:

        def start(task):
            started = ended(tasks(task, directory, *arguments, **options))
            running[task] = stack.enter_context(started)

        start("train"), start("evaluate")
        while [each.wait(0) for each in running["train"]] != [0] * len(running["train"]):
            if killed == kills:
                for each in running["train"]:
                    each.wait()
                    assert each.returncode == 0, each.communicate()
                break
            time.sleep(draw.uniform(0, 1.0))
            task = draw.choice(["train", "evaluate"])
            if running[task][0].poll() != 0:
                draw.choice(running[task]).kill()  # of several ranks one, which ends the others
                codes = [each.wait() for each in running[task]]
                killed += -signal.SIGKILL in codes
                start(task)
        for each in running["evaluate"]:
            each.wait()  # it ends by the word of the run
            assert each.returncode == 0, each.communicate()
    return killed


def check_same(ours, theirs):
    """The same decisions: rates, rows, the end, what is kept, and the bits of the weights."""
    check_same_run(ours, theirs, "model", "ema")
    one, two = (checkpoints(each) for each in (ours, theirs))
    one = one[-len(two) :]  # a kill between the last save and its pruning leaves older ones
    assert [e.manifest.iteration for e in one] == [e.manifest.iteration for e in two]
    assert [e.manifest.metrics for e in one] == [e.manifest.metrics for e in two]


@pytest.fixture(scope="module")
def whole(tasks, tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    run(tasks, directory)
    return directory


@pytest.mark.slow
def test_the_rate_the_end_and_the_best_go_by_what_the_other_process_has_measured(whole):
    rows = rows_of(whole)
    taken = [(row["iteration"], row["val/of_iteration"]) for row in rows if "val/loss" in row]
    *in_time, last = taken
    assert in_time == [(EPOCH * (n + 1), EPOCH * n) for n in range(1, len(taken))]
    assert last == (rows[-1]["iteration"], rows[-1]["iteration"])
    assert rows[-2]["lr"] < rows[0]["lr"] / 2
    losses = {row["val/of_iteration"]: row["val/loss"] for row in rows if "val/loss" in row}
    best = checkpoints(whole).best("val/loss")
    assert losses[best.manifest.iteration] == min(losses.values())


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kills"), [(0, 4), pytest.param(1, 50, marks=pytest.mark.soak)])
@pytest.mark.timeout(1800)
def test_killed_at_random_it_is_the_same_run(tasks, tmp_path, whole, seed, kills):
    draw, done = random.Random(seed), 0
    for number in range(kills):
        done += run(tasks, tmp_path / f"{number}", draw=draw, kills=min(8, kills - done))
        check_same(tmp_path / f"{number}", whole)
        if done >= kills:
            break


@pytest.mark.slow
@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.soak)])
@pytest.mark.timeout(1800)
def test_with_a_machine_that_sees_only_the_store_it_is_the_same_run(tasks, tmp_path, whole, kills):
    draw, done, number = random.Random(kills), 0, 0
    while done < kills:
        directory, store, number = tmp_path / f"{number}", tmp_path / f"store-{number}", number + 1
        done += run(tasks, directory, draw=draw, kills=min(8, kills - done), store=store)
        check_same(directory, whole)
        assert not (directory / "nowhere").exists()


@pytest.mark.slow
def test_a_run_that_awaits_two_results_outlives_its_disk(tasks, tmp_path):
    directory, store = tmp_path / "run", tmp_path / "store"
    options = ("--max-epochs", 5, "--lag", 2 * EPOCH)
    run(tasks, tmp_path / "whole", *options)
    with ended(tasks("evaluate", directory, *options, store=store)) as (evaluating,):
        with ended(tasks("train", directory, *options, store=store)) as (training,):
            while not [*store.glob(f"iteration-{3 * EPOCH:010d}.*/manifest.json")]:
                assert training.poll() is None
                time.sleep(0.01)
            training.kill()
            training.wait()
        directory.rename(tmp_path / "lost")  # at once: the process that copies ends a moment later
        with ended(tasks("train", directory, *options, store=store)) as (training,):
            assert training.wait() == 0, training.communicate()
        assert evaluating.wait() == 0
    check_same_run(directory, tmp_path / "whole", "model", "ema")


@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_on_two_ranks_it_is_killed_or_stopped_while_it_waits(tasks, tmp_path, kills):
    short = ("--max-epochs", 6)
    run(tasks, tmp_path / "whole", *short, ranks=2)
    run(tasks, tmp_path / "killed", *short, ranks=2, draw=random.Random(0), kills=kills)
    check_same(tmp_path / "killed", tmp_path / "whole")
    with ended(tasks("train", tmp_path / "stopped", *short, ranks=2)) as waiting:
        while not checkpoints(tmp_path / "stopped"):
            time.sleep(0.01)
        time.sleep(1.0)  # it is in iteration 46 by then, or will come there
        waiting[1].send_signal(signal.SIGTERM)
        assert [each.wait() for each in waiting] == [143, 143]
    assert "SIGTERM" in checkpoints(tmp_path / "stopped")[-1].manifest.reason
    run(tasks, tmp_path / "stopped", *short, ranks=2)
    check_same(tmp_path / "stopped", tmp_path / "whole")


@pytest.mark.slow
def test_a_run_that_waits_is_stopped_by_a_signal_and_goes_on_waiting(tasks, tmp_path, whole):
    with ended(tasks("train", tmp_path)) as (waiting,):
        while not checkpoints(tmp_path):
            time.sleep(0.01)
        time.sleep(0.5)
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait() == 143
    assert "SIGTERM" in checkpoints(tmp_path)[-1].manifest.reason
    run(tasks, tmp_path)
    check_same(tmp_path, whole)


def test_without_the_other_process_a_run_may_go_on(tasks, tmp_path):
    (process,) = tasks("train", tmp_path, "--late", "skip", "--max-epochs", 3)
    with process:
        _, said = process.communicate()
    assert process.wait() == 0
    assert said.count("skipped, as there was no result at iteration") == 3
    assert "val/loss" not in str(rows_of(tmp_path))
