"""Lines that are only added, and outlive their writer."""

import os

from camshaft.handlers.journal.file import JournalFile, is_written, read_journal


def test_a_line_that_was_torn_is_left_out_and_the_next_one_stands_alone(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"event": "started"}\n{"event": "run')
    lines = JournalFile()
    lines.write(path, {"event": "resumed"})
    lines.write(path, {"event": "completed"})
    lines.close()
    assert [each["event"] for each in read_journal(path)] == ["started", "resumed", "completed"]


def test_what_is_no_line_of_a_journal_is_left_out(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(
        b'[1]\n\xff\xfe\n{"event": 3}\n{"loss": 1}\nnull\n\n{"event": "saving"}\n' + b"[" * 99_999
    )
    assert read_journal(path) == [{"event": "saving"}]


def test_a_line_that_could_be_written_only_in_part_is_torn(tmp_path, caplog, monkeypatch):
    path, lines = tmp_path / "journal.jsonl", JournalFile()
    whole = os.write
    lines.write(path, {"event": "started"})
    monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[:9]))
    lines.write(path, {"event": "running"})
    monkeypatch.setattr(os, "write", whole)
    lines.write(path, {"event": "completed"})
    lines.close()
    assert [each["event"] for each in read_journal(path)] == ["started", "completed"]
    assert len(caplog.records) == 1


def test_a_file_is_written_while_somebody_has_it_open_to_write(tmp_path):
    path, lines = tmp_path / "journal.jsonl", JournalFile()
    assert not is_written(path)
    lines.write(path, {"event": "started"})
    assert is_written(path)
    assert is_written(path)  # looking changes nothing
    lines.close()
    assert not is_written(path)
