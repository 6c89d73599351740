"""Files of whole lines."""

import os
import resource
import signal
from contextlib import contextmanager

import pytest

from camshaft import Engine
from camshaft.handlers.loggers import CSV, JSONLines
from camshaft.handlers.loggers.files import LineFile, move_aside, replace_lines


@contextmanager
def at_most(size):
    """Lets files grow to so many bytes, as a full disk would; pytest's own output, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_line_that_does_not_fit_leaves_no_part_of_itself(tmp_path):
    path = tmp_path / "lines"
    file = LineFile(path)
    file.write("first\n")
    with at_most(10), pytest.raises(OSError, match="File too large"):
        file.write("second\n")
    assert path.read_text() == "first\n"
    file.write("third\n")
    file.close()
    assert path.read_text() == "first\nthird\n"


def test_a_line_is_in_the_file_at_once_and_after_what_was_there(tmp_path):
    path = tmp_path / "lines"
    path.write_text("before\n")
    file = LineFile(path)
    file.write("ä\n")
    file.sync()
    assert path.read_text(encoding="utf-8") == "before\nä\n"
    file.close()


def test_lines_are_replaced_all_at_once(tmp_path):
    path = tmp_path / "lines"
    path.write_text("old\n")

    def lines():
        yield "new\n"
        assert path.read_text() == "old\n"
        yield "lines\n"

    replace_lines(path, lines())
    assert path.read_text() == "new\nlines\n"
    assert os.listdir(tmp_path) == ["lines"]


def test_an_empty_file_is_not_moved(tmp_path, caplog):
    path = tmp_path / "lines"
    path.touch()
    move_aside(path, "JSONLines")
    assert path.exists()
    assert not caplog.records


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_a_run_that_starts_anew_moves_the_rows_of_others_to_the_next_free_number(
    kind, tmp_path, caplog
):
    def train_step(state, batch):
        state.metrics["loss"] = batch

    path = tmp_path / "rows"
    for batch in (1.5, 2.5, 4.5):
        Engine(train_step, kind(path)).run([batch], max_epochs=1)
    for name, loss in (("rows.1", "1.5"), ("rows.2", "2.5"), ("rows", "4.5")):
        assert loss in (tmp_path / name).read_text()
    assert [f"moved to {path}.{number}" in caplog.text for number in (1, 2)] == [True, True]
    assert all(kind.__name__ in message for message in caplog.messages)


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_a_directory_is_refused_with_the_line_to_write(kind, tmp_path):
    with pytest.raises(IsADirectoryError, match=rf"{kind.__name__}\('.*/rows\.(jsonl|csv)'\)"):
        Engine(lambda state, batch: None, kind(tmp_path))
