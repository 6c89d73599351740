"""The lock: one writer at a time, named to the others, and gone when its process is."""

import json
import os
import signal
import socket
from threading import Timer

import pytest

from camshaft.handlers.files.lock import LOCK, locked

HOLDER = """
import os, sys, time
from pathlib import Path
from camshaft.handlers.files.lock import locked

with locked(Path(sys.argv[1])):
    child = os.fork() if len(sys.argv) > 2 else 1
    if child == 0:
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    time.sleep(60)
"""


def test_another_process_is_named(processes, tmp_path):
    with processes.start(HOLDER, tmp_path) as process:
        process.stdout.readline()
        told = json.loads((tmp_path / LOCK).read_text())
        says = f"process {process.pid} on {socket.gethostname()}, since {told['since']}"
        with pytest.raises(BlockingIOError) as caught, locked(tmp_path):
            pass
        process.send_signal(signal.SIGTERM)
    assert "another run writes to" in str(caught.value)
    assert says in str(caught.value)
    with locked(tmp_path):
        pass


def test_a_killed_process_leaves_no_lock_while_those_it_forked_live_on(processes, tmp_path):
    with processes.start(HOLDER, tmp_path, "fork") as process:
        child = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            os.kill(child, 0)  # it lives
            with locked(tmp_path):
                assert json.loads((tmp_path / LOCK).read_text())["process"] == os.getpid()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_restarted_run_waits_a_while_for_the_process_that_is_ending(processes, tmp_path, caplog):
    with processes.start(HOLDER, tmp_path) as process:
        process.stdout.readline()
        with pytest.raises(BlockingIOError), locked(tmp_path, patience=0.15):
            pass
        assert [each.levelname for each in caplog.records] == ["WARNING"]  # once, however long
        assert f"waits up to 0 s for its end: another run writes to {tmp_path}" in caplog.text
        Timer(0.2, process.kill).start()
        with locked(tmp_path, patience=60):
            assert json.loads((tmp_path / LOCK).read_text())["process"] == os.getpid()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_this_one_forks_has_not_got_it_and_does_not_give_it_away(
    processes, tmp_path
):
    with locked(tmp_path):
        if (child := os.fork()) == 0:
            try:
                with locked(tmp_path):
                    os._exit(1)
            except BlockingIOError as error:
                os._exit(0 if f"process {os.getppid()}" in str(error) else 2)
            finally:
                os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        other = processes.run(HOLDER.replace("time.sleep(60)", "pass"), tmp_path, code=1)
        assert "BlockingIOError: another run writes to" in other.stderr


def test_within_a_process_it_holds_too_and_by_any_name_of_the_directory(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with (
        locked(tmp_path / "run"),
        pytest.raises(BlockingIOError, match="a run in this very process writes to .*link"),
        locked(tmp_path / "link"),
    ):
        pass
    with locked(tmp_path / "link"):
        pass


def test_nothing_is_left_of_it_whatever_happens(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ["", "[]", "no json", '{"process": 1}'])
def test_what_a_killed_one_left_in_the_file_does_not_matter(tmp_path, left):
    (tmp_path / LOCK).write_text(left)
    with locked(tmp_path):
        pass


CONTENDER = """
import sys, time
from pathlib import Path
from camshaft.handlers.files.lock import locked

directory, inside, end = Path(sys.argv[1]), Path(sys.argv[2]), time.monotonic() + 2
got = 0
while time.monotonic() < end:
    try:
        with locked(directory):
            inside.mkdir()  # fails if somebody else is inside
            inside.rmdir()
            got += 1
    except BlockingIOError:
        pass
print(got)
"""


@pytest.mark.slow
def test_processes_that_compete_for_it_never_have_it_together(processes, tmp_path):
    (tmp_path / "run").mkdir()
    contenders = processes.run_ranks(3, CONTENDER, tmp_path / "run", tmp_path / "inside")
    assert [each.stderr for each in contenders] == ["", "", ""]
    assert sum(int(each.stdout) for each in contenders) > 10


def test_a_file_system_without_locks_is_told_of_once_it_matters(tmp_path, caplog, monkeypatch):
    import fcntl

    def refuse(descriptor, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with locked(tmp_path):
        assert "cannot be locked, so a second writer would not be noticed" in caplog.text


def test_who_has_lost_the_directory_does_not_take_the_lock_of_the_next(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    with locked(directory):
        directory.rename(tmp_path / "moved")
        directory.mkdir()
        (directory / LOCK).touch()
    assert (directory / LOCK).exists()


@pytest.mark.parametrize("there", [True, False])
def test_a_lock_that_is_a_link_is_refused_and_what_it_leads_to_stays(there, tmp_path):
    (tmp_path / "run").mkdir()
    mine = tmp_path / "mine"
    if there:
        mine.write_text("mine")
    (tmp_path / "run" / LOCK).symlink_to(mine)
    with (
        pytest.raises(OSError, match="LOCK is not a regular file but a link"),
        locked(tmp_path / "run"),
    ):
        pass
    assert (mine.read_text() == "mine") if there else not mine.exists()


def test_a_lock_that_has_another_name_too_stays_as_it_is_under_that_name(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "run" / LOCK).hardlink_to(tmp_path / "mine")
    with locked(tmp_path / "run"):
        told = json.loads((tmp_path / "run" / LOCK).read_text())
        assert told["process"] == os.getpid()
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_lock_that_another_process_holds_is_not_taken_for_its_second_name(processes, tmp_path):
    (tmp_path / "run").mkdir()
    with processes.start(HOLDER, tmp_path / "run") as process:
        process.stdout.readline()
        (tmp_path / "backup").hardlink_to(tmp_path / "run" / LOCK)
        with (
            pytest.raises(BlockingIOError, match="another run writes to"),
            locked(tmp_path / "run"),
        ):
            pass
        process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_lock_that_is_a_pipe_or_a_directory_is_refused_at_once(make, tmp_path):
    make(tmp_path / LOCK)
    with pytest.raises(OSError, match="LOCK is not a regular file but a"), locked(tmp_path):
        pass


def test_it_tells_whether_the_directory_still_is_the_one_that_was_locked(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    with locked(directory) as is_held:
        assert is_held()
        directory.rename(tmp_path / "moved")
        assert not is_held()
        directory.mkdir()
        assert not is_held()
        with locked(directory) as is_held_too:
            assert is_held_too()
            assert not is_held()
