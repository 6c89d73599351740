"""A log file for each rank."""

import logging

import pytest

from camshaft import Engine, Events
from camshaft.handlers import RankLogs

SCRIPT = """
import logging, sys
import ignite.distributed as idist
from camshaft import Engine, ranks
from camshaft.handlers import RankLogs

idist.initialize("gloo")
logging.basicConfig(level="INFO")
log = logging.getLogger("script")
engine = Engine(lambda state, batch: log.info("batch %s", batch), RankLogs(sys.argv[1]))
engine.run([10 + ranks.rank()], max_epochs=1)
idist.finalize()
"""


def run(directory, step):
    return Engine(step, RankLogs(directory)).run([1], max_epochs=1)


def test_what_is_logged_during_a_run_is_in_the_file_and_nothing_else(tmp_path):
    log = logging.getLogger("script")
    run(tmp_path / "logs", lambda state, batch: log.warning("low on %s", "disk"))
    log.warning("later")
    text = (tmp_path / "logs" / "rank-0.log").read_text()
    assert "WARNING script: low on disk" in text
    assert "later" not in text
    run(tmp_path / "logs", lambda state, batch: log.warning("again"))
    text = (tmp_path / "logs" / "rank-0.log").read_text()
    assert "low on disk" in text  # the runs' lines follow each other
    assert text.count("again") == 1


def test_what_is_logged_while_a_run_is_loaded_is_in_it(tmp_path):
    engine = Engine(lambda state, batch: None, RankLogs(tmp_path))
    log = logging.getLogger("script")
    engine.on(Events.LOADING)(lambda state: log.warning("from iteration 3"))
    engine.run([1], max_epochs=1)
    assert "from iteration 3" in (tmp_path / "rank-0.log").read_text()


def test_the_traceback_of_a_run_that_fails_is_in_it_and_the_file_is_closed(tmp_path, caplog):
    def fail(state, batch):
        raise RuntimeError("no such luck")

    before = list(logging.getLogger().handlers)
    with pytest.raises(RuntimeError):
        run(tmp_path, fail)
    text = (tmp_path / "rank-0.log").read_text()
    assert "the run failed" in text
    assert "RuntimeError: no such luck" in text
    assert "in the process function" in text
    assert "the run failed" not in caplog.text
    assert logging.getLogger().handlers == before


def test_each_rank_has_a_file_of_its_own(processes, tmp_path):
    processes.run_ranks(2, SCRIPT, tmp_path)
    for rank in (0, 1):
        text = (tmp_path / f"rank-{rank}.log").read_text()
        assert f"INFO script: batch 1{rank}" in text
        assert f"batch 1{1 - rank}" not in text
