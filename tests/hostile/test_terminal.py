"""Names from files reach a terminal escaped, whoever says them."""

import csv
import logging
import shutil

import pytest

from camshaft import Engine, Events
from camshaft.handlers import CSV
from camshaft.handlers.checkpoint import BrokenCheckpoint
from camshaft.handlers.files import locked, printable, printable_lines

ODD = "\x1b[2J\u202egpj\ud800\x07\u2028"
ESCAPED = r"\x1b[2J\u202egpj\ud800\x07\u2028"


def test_what_a_terminal_obeys_is_escaped_and_letters_stay():
    assert printable(ODD) == ESCAPED
    assert printable("Größe 速度 \\x1b") == "Größe 速度 \\x1b"
    assert printable_lines("a\nb\t") == "a\nb\\t"


def test_a_broken_checkpoint_says_its_reason_and_its_place_escaped(tmp_path):
    error = BrokenCheckpoint(f"has objects {ODD}", tmp_path / ODD.replace("\ud800", ""))
    assert str(error).isprintable()
    assert error.reason == f"has objects {ESCAPED}"


def test_every_message_of_the_logger_is_escaped(caplog):
    logging.getLogger("camshaft").warning("%s\n  %d%% of %s", ODD, 5, [1])
    assert caplog.messages == [f"{ESCAPED}\n  5% of [1]"]


def test_a_resume_that_does_not_fit_names_foreign_objects_escaped(
    honest, hostile, tmp_path, fitting
):
    run = shutil.copytree(honest, tmp_path / "run")
    fitting(run, lambda tree: tree["objects"].update({ODD: tree["objects"].pop("optimizer")}))
    with pytest.raises(ValueError, match="does not fit|is broken") as caught:
        hostile.train(run, until=5, resume=run / "iteration-0000000004")
    assert str(caught.value).replace("\n", "").isprintable()
    assert "gpj" in str(caught.value)


def test_an_error_of_the_command_line_is_one_escaped_line(
    honest, hostile, tmp_path, fitting, capsys
):
    run = shutil.copytree(honest, tmp_path / "run")
    fitting(run, lambda tree: tree["objects"].update({ODD: tree["objects"]["model"]}))
    given = ["export", str(run / "iteration-0000000004"), str(tmp_path / "x.pt"), "--object", "y"]
    assert hostile.main(given) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.strip().isprintable()
    odd = tmp_path / "\x1b]0;t\x07\n"
    assert hostile.main(["inspect", str(odd)]) == 2
    assert capsys.readouterr().err.strip().isprintable()


HOLD = """
import fcntl, json, signal, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
file.write(json.dumps({"process": "\\x1b[2J", "host": "\\u202e", "since": ["\\x07"]}))
file.flush()
print("locked", flush=True)
signal.pause()
"""


def test_the_owner_of_a_lock_is_escaped(processes, tmp_path):
    with processes.start(HOLD, tmp_path / "LOCK") as holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(BlockingIOError) as caught, locked(tmp_path):
            pass
        holder.kill()
    assert str(caught.value).isprintable()
    assert r"process \x1b[2J on \u202e" in str(caught.value)


def test_the_columns_of_a_table_are_escaped_and_no_spreadsheet_computes_them(tmp_path):
    def step(state, batch):
        state.metrics.update({"a\nb": 1.0, "\x1b[2J": 2.0, "=1+1": 3.0, 'say "x", y': 4.0})

    path = tmp_path / "rows.csv"
    Engine(step, CSV(path, when=Events.ITERATION_COMPLETED)).run([1, 2], max_epochs=1)
    head, *rows = csv.reader(path.read_text().splitlines())
    assert head[3:] == [r"a\nb", r"\x1b[2J", "'=1+1", 'say "x", y']
    assert [row[3:] for row in rows] == [["1.0", "2.0", "3.0", "4.0"]] * 2
