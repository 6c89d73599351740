"""`camshaft tail`: the rows of a run, as a process that follows a process."""

import json
import os
import signal
import threading
from contextlib import ExitStack

import pytest

from camshaft import Engine, Events
from camshaft.handlers import Journal, JSONLines

ROWS = [{"iteration": n, "step": n, "epoch": 1, "loss": n / 2} for n in range(1, 6)]


def write(path, rows, mode="w"):
    path.parent.mkdir(exist_ok=True)
    with path.open(mode) as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture
def follow(processes, tmp_path):
    """Starts `camshaft tail` on `run`; gives the process."""
    with ExitStack() as started:
        command = "from camshaft.__main__ import main\nraise SystemExit(main())"
        yield lambda *options: started.enter_context(
            processes.start(command, "tail", tmp_path / "run", *options)
        )


@pytest.fixture
def run(tmp_path):
    """A run that goes on by one iteration each time it is asked to."""

    class Run:
        def __init__(self):
            self.steps = threading.Semaphore(0)
            directory = tmp_path / "run"
            engine = Engine(lambda state, batch: self.steps.acquire() and batch)
            engine.on(Events.ITERATION_COMPLETED)(
                lambda state: state.metrics.update({"loss": float(state.output)})
            )
            rows = JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED)
            engine.add(rows, Journal(directory))
            opened = threading.Event()
            engine.on(Events.ITERATION_STARTED(at=1))(lambda state: opened.set())
            self.thread = threading.Thread(
                target=lambda: engine.run(range(1, 6), max_epochs=1), daemon=True
            )
            self.thread.start()
            assert opened.wait(60)

        def go(self, count=1):
            for _ in range(count):
                self.steps.release()

    made = Run()
    yield made
    made.go(9)
    made.thread.join(60)


def test_rows_are_shown_as_they_are_written_until_the_run_ends(run, follow):
    process = follow()
    run.go()
    assert process.stdout.readline() == "iteration 1  step 0  epoch 1  loss=1\n"
    run.go(2)
    assert process.stdout.readline() == "iteration 2  step 0  epoch 1  loss=2\n"
    assert process.stdout.readline() == "iteration 3  step 0  epoch 1  loss=3\n"
    run.go(2)
    rest, errors = process.communicate()
    process.wait(30)
    assert [line.split()[1] for line in rest.splitlines()] == ["4", "5"]
    assert process.returncode == 0
    assert errors.endswith("run: finished\n")


def test_ctrl_c_ends_it_with_code_0(run, follow):
    process = follow()
    run.go()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert process.stderr.read().strip() == ""


@pytest.mark.parametrize("count", [0, 1, 3, 9])
def test_it_begins_with_as_many_rows_as_are_asked_for(camshaft, tmp_path, count):
    engine = Engine(lambda state, batch: None, Journal(tmp_path / "run"))
    engine.run([1], max_epochs=1)
    write(tmp_path / "run" / "rows.jsonl", ROWS)
    code, lines, errors = camshaft("tail", tmp_path / "run", "-n", count, "--json")
    assert (code, len(errors)) == (0, 1)
    assert [json.loads(line) for line in lines] == ROWS[len(ROWS) - min(count, 5) :]


def test_a_row_that_is_half_written_is_shown_when_it_is_whole(follow, tmp_path):
    rows = tmp_path / "run" / "rows.jsonl"
    write(rows, ROWS[:2])
    (tmp_path / "run" / "journal.jsonl").write_text("version https://git-lfs.github.com/spec/v1\n")
    with rows.open("a") as file:
        file.write('{"iteration": 3, "lo')
    process = follow("-n", "1", "--json")
    assert json.loads(process.stdout.readline())["iteration"] == 2
    with rows.open("a") as file:
        file.write('ss": 7}\n')
    assert json.loads(process.stdout.readline()) == {"iteration": 3, "loss": 7}
    process.send_signal(signal.SIGINT)
    assert "no journal to read, so nothing tells when the run ends" in process.communicate()[1]


def test_what_a_resumed_run_writes_again_is_not_shown_again(follow, tmp_path):
    rows = tmp_path / "run" / "rows.jsonl"
    write(rows, ROWS[:3])
    process = follow()
    assert [process.stdout.readline().split()[1] for _ in range(3)] == ["1", "2", "3"]
    os.truncate(rows, len(json.dumps(ROWS[0])) + 1)
    write(rows, ROWS[1:4], "a")
    assert process.stdout.readline().split()[1] == "4"
    process.send_signal(signal.SIGINT)
    assert "anew" not in process.communicate()[1]


def test_another_run_in_the_same_file_is_shown_from_its_first_row(follow, tmp_path):
    rows = tmp_path / "run" / "rows.jsonl"
    write(rows, ROWS)
    process = follow("-n", "1")
    assert process.stdout.readline().split()[1] == "5"
    write(rows.with_name("new"), [row | {"loss": 9} for row in ROWS[:2]])
    rows.with_name("new").replace(rows)
    assert process.stdout.readline().split() == [
        *["iteration", "1", "step", "1", "epoch", "1", "loss=9"]
    ]
    process.send_signal(signal.SIGINT)
    assert "rows.jsonl was begun anew" in process.communicate()[1]


def test_rows_of_several_files_say_which_and_what_is_no_number_is_left_out(camshaft, tmp_path):
    Engine(lambda state, batch: None, Journal(tmp_path / "run")).run([1], max_epochs=1)
    write(tmp_path / "run" / "a.jsonl", [{"iteration": 1, "loss": "NaN", "big": 10**400}])
    write(tmp_path / "run" / "b.jsonl", [{"iteration": 1, "x": {"text": "t"}}, {"text": 1}, [1]])
    write(tmp_path / "run" / "c.jsonl", [{"iteration": 2, "na\x1bme": 1}])
    assert camshaft("tail", tmp_path / "run")[1] == [
        "a.jsonl: iteration 1  loss=nan, big=inf",
        "c.jsonl: iteration 2  na\\x1bme=1",
    ]


def test_a_killed_run_has_ended(processes, camshaft, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("""
import os, signal
from camshaft import Engine, Events
from camshaft.handlers import Journal, JSONLines
engine = Engine(lambda state, batch: None, Journal("run"), JSONLines("run/rows.jsonl"))
engine.on(Events.EPOCH_COMPLETED(at=2))(lambda state: os.kill(os.getpid(), signal.SIGKILL))
engine.run([1], max_epochs=3)
""")
    processes.run(script, cwd=tmp_path, code=-9)
    code, _, errors = camshaft("tail", tmp_path / "run")
    assert (code, errors) == (0, [f"camshaft: {tmp_path / 'run'}: killed"])


def test_where_there_is_no_run_the_code_is_2(camshaft, save, tmp_path):
    assert camshaft("tail", tmp_path / "no") == (
        2,
        [],
        [f"camshaft: {tmp_path}/no is no directory"],
    )
    save(1)
    code, _, errors = camshaft("tail", tmp_path / "run")
    assert code == 2
    assert errors[0].endswith("run holds no rows, which JSONLines writes, and no journal")
    with pytest.raises(SystemExit, match="2"):
        camshaft("tail", tmp_path, "-n", "-1")
