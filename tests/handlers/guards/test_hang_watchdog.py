"""Stacks of all threads, when a run makes no progress."""

import logging
import os
import signal
import time

import pytest

from camshaft import Engine
from camshaft.handlers import HangWatchdog, Validate


def hang_in_the_third_batch(state, batch):
    if batch == 3:
        time.sleep(0.5)


def test_the_stacks_show_where_the_run_hangs_once_and_the_run_goes_on(tmp_path, caplog):
    engine = Engine(hang_in_the_third_batch, HangWatchdog(0.1, path=tmp_path / "hang.txt"))
    with caplog.at_level(logging.WARNING, "camshaft"):
        state = engine.run([1, 2, 3, 4], max_epochs=1)
    assert state.iteration == 4
    text = (tmp_path / "hang-rank0.txt").read_text()
    assert text.count("hang_in_the_third_batch") == 1
    assert text.count("Timeout") == 1
    assert caplog.text.count("no iteration was completed for 0.1 seconds, after iteration 3") == 1
    assert f"are in {tmp_path / 'hang-rank0.txt'}\n" in caplog.text


def test_iterations_of_an_evaluation_are_progress(tmp_path):
    def process(state, batch):
        time.sleep(0 if state.training else 0.05)

    watchdog = HangWatchdog(0.3, path=tmp_path / "hang.txt")
    engine = Engine(process, watchdog, Validate(range(12)))
    engine.run([1], max_epochs=1)
    assert (tmp_path / "hang-rank0.txt").read_text() == ""


def test_a_run_that_hangs_in_c_with_the_interpreter_held_is_ended_and_its_stacks_are_shown(
    processes,
):
    script = """
        import re
        from camshaft import Engine
        from camshaft.handlers import HangWatchdog

        def backtrack(state, batch):
            re.match("(a+)+b", "a" * 60)  # holds the interpreter for years

        Engine(backtrack, HangWatchdog(0.2, exit=True)).run([1], max_epochs=1)
    """
    with processes.start(script) as process:
        result = process.result()
    assert result.returncode == 1
    assert "backtrack" in result.stderr


@pytest.mark.slow
def test_a_process_that_is_ended_names_the_file_of_its_stacks_in_a_line(processes, tmp_path):
    script = f"""
        import threading
        from camshaft import Engine
        from camshaft.handlers import HangWatchdog

        watchdog = HangWatchdog(0.5, exit=True, path="{tmp_path}/hang.txt")
        Engine(lambda state, batch: threading.Event().wait(), watchdog).run([1], max_epochs=1)
    """
    with processes.start(script) as process:
        result = process.result()
    assert result.returncode == 1
    where = f"the stacks of all threads are in {tmp_path}/hang-rank0.txt, and the process is ended"
    assert result.stderr.count("\n") == 1
    assert where in result.stderr
    assert "<lambda>" in (tmp_path / "hang-rank0.txt").read_text()


def test_without_standard_error_a_file_is_asked_for(tmp_path, monkeypatch):
    for name in ("stderr", "__stderr__"):
        monkeypatch.setattr(f"sys.{name}", None)
    with pytest.raises(RuntimeError, match=r"which is closed; name a file: HangWatchdog\(path="):
        Engine(lambda state, batch: None, HangWatchdog()).run("ab", max_epochs=1)
    watched = Engine(lambda state, batch: None, HangWatchdog(path=tmp_path / "hang.txt"))
    assert watched.run("ab", max_epochs=1).iteration == 2


def test_seconds_have_to_be_positive():
    with pytest.raises(ValueError, match=r"HangWatchdog\(seconds=0\)"):
        HangWatchdog(0)


def test_a_signal_shows_the_stacks_and_the_run_continues(tmp_path, caplog):
    def wait_for_the_note(state, batch):
        if batch == 2:
            os.kill(os.getpid(), signal.SIGQUIT)
            for _ in range(100):
                time.sleep(0 if "SIGQUIT: iteration 2" in caplog.text else 0.1)

    engine = Engine(wait_for_the_note, HangWatchdog(path=tmp_path / "hang.txt"))
    with caplog.at_level(logging.WARNING, "camshaft"):
        assert engine.run([1, 2, 3], max_epochs=1).iteration == 3
    text = (tmp_path / "hang-rank0.txt").read_text()
    assert text.count("wait_for_the_note") == 1
    assert caplog.text.count("SIGQUIT") == 1
    assert signal.getsignal(signal.SIGQUIT) is signal.SIG_DFL
    assert signal.set_wakeup_fd(-1) == -1


def test_a_script_keeps_its_own_handler_of_the_signal():
    heard = []
    before = signal.signal(signal.SIGQUIT, lambda *_: heard.append(True))
    try:
        engine = Engine(lambda state, batch: os.kill(os.getpid(), signal.SIGQUIT), HangWatchdog())
        engine.run([1, 2], max_epochs=1)
    finally:
        signal.signal(signal.SIGQUIT, before)
    assert heard == [True, True]
