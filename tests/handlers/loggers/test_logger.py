"""Loggers of one's own, and how they are wired."""

import pytest

from camshaft import Engine, Events
from camshaft.handlers.loggers import CSV, JSONLines, Logger, TensorBoard

EACH = Events.ITERATION_COMPLETED


class Board:
    def __init__(self, start):
        pass

    def write(self, row):
        pass

    def sync(self):
        pass

    def close(self):
        pass


def test_a_logger_is_called_after_what_it_opens_or_as_one_says():
    engine = Engine(lambda state, batch: None, Logger(Board), Logger(Board, name="mine"))
    assert list(engine.handlers) == ["Logger(Board)", "Logger(mine)"]


def test_what_opens_nothing_is_refused():
    with pytest.raises(TypeError, match="needs what makes a writer"):
        Logger("tensorboard")


@pytest.mark.parametrize("kind", [JSONLines, CSV, TensorBoard])
def test_the_table_of_handlers_says_what_a_logger_does_and_when(kind, tmp_path):
    engine = Engine(lambda state, batch: None, kind(tmp_path / "rows", when=EACH(every=7)))
    table = " ".join(str(engine.describe()).split())
    for line in (
        f"REPORT {kind.__name__}.open_log",
        f"REPORT {kind.__name__}.write",
        "Events.ITERATION_COMPLETED(every=7)",
        f"MEASURE {kind.__name__}.sync",
        f"REPORT {kind.__name__}.close",
        "logger.py:",
    ):
        assert line in table


def test_a_logger_is_of_rank_0_alone(tmp_path):
    assert Logger(Board).rank == JSONLines(tmp_path / "rows").rank == 0


def test_what_no_logger_shows_stays_where_it_is(tmp_path):
    engine = Engine(lambda state, batch: state.metrics.update(thing=object()))
    engine.add(Logger(Board, when=EACH))
    assert engine.run([1], max_epochs=1).memory["Logger(Board)"].number == 0
