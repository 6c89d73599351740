"""The thread that writes: one task at a time, tried again, and no error lost."""

import logging
import os
import signal
import threading

import pytest

from camshaft.handlers.checkpoint.save import recorder as module
from camshaft.handlers.checkpoint.save.recorder import CheckpointWriter


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(module, "FIRST_WAIT", 0.001)


class Failing:
    """A task that fails some times before it succeeds."""

    def __init__(self, times, error=OSError):
        self.left, self.error, self.calls, self.told = times, error, 0, []

    def __call__(self, unable=None):
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error("disk full")

    def tell(self):
        self.told.append(self.calls)


def ignore(unable=None):
    pass


def again(writer, task):
    """What the writer tries several times."""
    return lambda unable: writer.several_times(task)


def test_a_task_runs_beside_and_the_next_one_waits_for_it():
    writer, go_on, order = CheckpointWriter(True, 0, "raise"), threading.Event(), []

    def first(unable):
        go_on.wait(60)
        order.append(threading.current_thread() is threading.main_thread())

    writer.start(first, ignore)
    order.append("begun")
    threading.Timer(0.05, go_on.set).start()
    writer.start(lambda unable: order.append("second"), ignore)
    assert order[:2] == ["begun", False]
    writer.wait()
    assert order == ["begun", False, "second"]
    writer.close(ignore)


def test_without_a_thread_a_task_is_done_when_start_returns():
    writer, done = CheckpointWriter(False, 0, "raise"), []
    writer.start(lambda unable: done.append(threading.current_thread()), ignore)
    assert done == [threading.main_thread()]
    writer.close(lambda: done.append("closed"))
    assert done[1:] == ["closed"]


@pytest.mark.parametrize("background", [True, False])
def test_what_fails_is_tried_again_with_a_warning_each_time(background, caplog):
    writer, task = CheckpointWriter(background, 3, "raise"), Failing(3)
    writer.start(again(writer, task), task.tell)
    writer.close(ignore)
    assert (task.calls, task.told) == (4, [])
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"disk full; trying again in {0.001 * 2**number:g} s ({number + 1} of 3)"
        for number in range(3)
    ]


def test_the_waits_are_one_two_and_four_seconds(monkeypatch, caplog):
    waits = []
    monkeypatch.setattr(module, "FIRST_WAIT", 1.0)
    monkeypatch.setattr(module.time, "sleep", waits.append)
    with pytest.raises(OSError, match="disk full"):
        CheckpointWriter(False, 3, "raise").several_times(Failing(9))
    assert waits == [1, 2, 4]


def test_a_failure_for_good_is_told_at_once_and_raised_by_who_waits_next():
    writer, task, reached = CheckpointWriter(True, 2, "raise"), Failing(9), threading.Event()
    writer.start(again(writer, task), reached.set)
    assert reached.wait(60)
    with pytest.raises(OSError, match="disk full"):
        writer.start(ignore, ignore)
    assert task.calls == 3
    writer.wait()  # each failure is raised once
    writer.close(ignore)


def test_a_failure_that_is_only_warned_of_is_an_error_in_the_log_and_the_next_task_runs(caplog):
    writer, task, done = CheckpointWriter(True, 0, "warn"), Failing(1), []
    writer.start(task, task.tell)
    writer.start(lambda unable: done.append(True), ignore)
    writer.close(ignore)
    assert (done, task.told) == ([True], [])
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "disk full; the run goes on without it"


@pytest.mark.parametrize("on_failure", ["raise", "warn"])
def test_what_is_no_failure_of_the_disk_is_raised_and_not_tried_again(on_failure):
    writer, task = CheckpointWriter(True, 3, on_failure), Failing(1, ZeroDivisionError)
    writer.start(again(writer, task), task.tell)
    with pytest.raises(ZeroDivisionError):
        writer.wait()
    assert (task.calls, task.told) == (1, [1])
    writer.close(ignore)


def test_closing_waits_raises_and_does_the_last_thing_all_the_same():
    writer, last = CheckpointWriter(True, 0, "raise"), []
    writer.start(Failing(1), ignore)
    with pytest.raises(OSError, match="disk full"):
        writer.close(lambda: last.append(True))
    assert last == [True]


@pytest.mark.parametrize("on_failure", ["raise", "warn"])
def test_a_task_whose_thread_cannot_start_is_called_with_the_error_and_never_done_later(
    on_failure, caplog
):
    writer, order = CheckpointWriter(True, 0, on_failure), []

    def task(unable):
        order.append("done" if unable is None else "told")
        if unable is not None:
            raise unable

    usual = threading.stack_size(2**47)  # more than a process can address
    try:
        writer.start(task, lambda: order.append("failed"))
    finally:
        threading.stack_size(usual)
    if on_failure == "raise":
        with pytest.raises(OSError, match="could not start the thread that writes checkpoints"):
            writer.wait()
    else:
        assert "could not start the thread that writes checkpoints" in caplog.text
    writer.start(task, ignore)
    writer.close(lambda: order.append("closed"))
    assert order == ["told", *(["failed"] if on_failure == "raise" else []), "done", "closed"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_does_not_wait_for_the_thread_it_has_not_got():
    writer, go_on = CheckpointWriter(True, 0, "raise"), threading.Event()
    writer.start(lambda unable: go_on.wait(60), ignore)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        writer.close(ignore)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    go_on.set()
    writer.close(ignore)
    assert os.waitstatus_to_exitcode(status) == 7
