"""The journal: what happened to a run, over all of its parts, and at no risk to it."""

import json
import logging
from argparse import Namespace
from dataclasses import dataclass

import pytest

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Journal, StopAfter
from camshaft.handlers.journal import is_written, read_journal


def journal_of(directory):
    return read_journal(directory / "journal.jsonl")


def events_of(directory):
    return [line["event"] for line in journal_of(directory)]


def counting():
    return Engine(lambda state, batch: batch)


def test_a_run_starts_and_is_completed_and_the_first_line_says_what_runs(tmp_path):
    engine = counting().add(Journal(tmp_path, config={"lr": 0.1}))
    engine.run([1, 2, 3], max_epochs=2)
    first, last = journal_of(tmp_path)
    assert (first["event"], first["iteration"]) == ("started", 0)
    assert first["config"] == {"lr": 0.1}
    assert first["limits"] == {
        **{"max_epochs": 2, "max_iterations": None, "max_steps": None, "epoch_length": 3}
    }
    assert first["environment"]["python"]
    assert ["Journal.open", "Events.STARTED"] in [[row[2], row[3]] for row in first["handlers"]]
    assert (last["event"], last["reason"]) == ("completed", "max_epochs")
    assert (last["iteration"], last["epoch"]) == (6, 2)
    assert first["time"] <= last["time"]
    assert first["part"] == last["part"]


def test_saves_interruptions_and_resumes_are_noted_with_their_reasons(tmp_path):
    def build(interrupt):
        engine = counting()
        if interrupt:
            engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.interrupt("tired"))
        return engine.add(Checkpoint(tmp_path, resume=True), Journal(tmp_path))

    build(interrupt=True).run([1, 2], max_epochs=3)
    build(interrupt=False).run([1, 2], max_epochs=3)
    told = [(line["event"], line["iteration"], line.get("reason")) for line in journal_of(tmp_path)]
    epoch = "Events.EPOCH_COMPLETED(last=True)"
    assert told == [
        ("started", 0, None),
        ("saving", 2, epoch),
        ("saving", 3, "tired"),
        ("interrupted", 3, "tired"),
        ("resumed", 3, None),
        ("saving", 4, epoch),
        ("saving", 6, epoch),
        ("completed", 6, "max_epochs"),
    ]
    assert len({line["part"] for line in journal_of(tmp_path)}) == 2


def test_a_stop_for_good_is_the_reason_of_the_completion(tmp_path):
    engine = counting().add(Journal(tmp_path))
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.stop("good enough"))
    engine.run([1, 2, 3], max_epochs=2)
    assert journal_of(tmp_path)[-1]["reason"] == "good enough"


def test_a_failure_is_told_with_its_error(tmp_path):
    def fail(state, batch):
        raise RuntimeError("no more memory")

    with pytest.raises(RuntimeError):
        Engine(fail, Journal(tmp_path)).run([1], max_epochs=1)
    last = journal_of(tmp_path)[-1]
    assert (last["event"], last["reason"]) == ("failed", "RuntimeError: no more memory")


def test_a_run_that_is_over_leaves_no_line(tmp_path):
    for _ in range(2):
        engine = counting().add(Checkpoint(tmp_path, resume=True), Journal(tmp_path))
        engine.run([1, 2], max_epochs=1)
    assert events_of(tmp_path).count("started") == 1
    assert events_of(tmp_path)[-1] == "completed"


def test_what_fails_before_the_start_is_told_too(tmp_path):
    counting().add(Checkpoint(tmp_path)).run([1], max_epochs=1)
    with pytest.raises(FileExistsError):
        counting().add(Checkpoint(tmp_path), Journal(tmp_path)).run([1], max_epochs=1)
    assert events_of(tmp_path) == ["failed"]


def test_signs_of_life_come_by_the_clock(tmp_path):
    engine = counting().add(Journal(tmp_path, interval=0.01), StopAfter(seconds=0.2))
    engine.run(iter(int, 1), max_epochs=1)
    assert events_of(tmp_path).count("running") >= 2


def test_a_run_may_gain_or_lose_its_journal_between_two_starts(tmp_path):
    def build(*handlers):
        return counting().add(Checkpoint(tmp_path, resume=True), *handlers)

    build(Journal(tmp_path, interval=1e-9)).run([1, 2], max_epochs=1)
    build().run([1, 2], max_epochs=2)
    assert build(Journal(tmp_path)).run([1, 2], max_epochs=3).iteration == 6
    assert [line["iteration"] for line in journal_of(tmp_path) if line["event"] == "resumed"] == [4]


def test_an_evaluation_inside_the_run_writes_nothing(tmp_path):
    engine = counting().add(Journal(tmp_path))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: engine.evaluate([1], parent=state))
    engine.run([1], max_epochs=2)
    assert events_of(tmp_path) == ["started", "completed"]


def test_the_configuration_is_copied_when_the_handler_is_made(tmp_path):
    @dataclass
    class Config:
        lr: float = 0.1

    config = Config()
    journal = Journal(tmp_path, config=config)
    config.lr = 7.0
    assert journal.config == {"lr": 0.1}
    assert Journal(tmp_path, config=Namespace(seed=1)).config == {"seed": 1}
    engine = counting().add(journal)
    assert engine.handlers["Journal"].config == {"lr": 0.1}


def test_what_is_no_configuration_and_no_interval_is_refused(tmp_path):
    with pytest.raises(TypeError, match="needs names and values"):
        Journal(tmp_path, config=[1, 2])
    with pytest.raises(ValueError, match="greater than 0"):
        Journal(tmp_path, interval=0)


def test_a_directory_that_cannot_be_written_costs_one_warning(tmp_path, caplog):
    (tmp_path / "file").touch()
    engine = counting().add(Journal(tmp_path / "file" / "run", interval=1e-9))
    with caplog.at_level(logging.WARNING, "camshaft"):
        assert engine.run([1, 2, 3], max_epochs=2).iteration == 6
    assert [record.message.split(",")[0] for record in caplog.records] == [
        f"Journal: cannot write to {tmp_path / 'file' / 'run' / 'journal.jsonl'}"
    ]


SCRIPT = """
import os, signal, sys
from camshaft import Engine, Events
from camshaft.handlers import Journal
engine = Engine(lambda state, batch: None, Journal(sys.argv[1]))
@engine.on(Events.ITERATION_COMPLETED(at=2))
def wait(state):
    print("there", flush=True)
    signal.pause()
engine.run([1, 2, 3], max_epochs=1)
"""


def test_a_run_that_is_killed_leaves_its_lines_and_no_last_one(processes, tmp_path):
    with processes.start(SCRIPT, tmp_path) as process:
        assert process.stdout.readline() == "there\n"
        assert is_written(tmp_path / "journal.jsonl")
        process.kill()
    assert events_of(tmp_path) == ["started"]
    assert not is_written(tmp_path / "journal.jsonl")


def test_two_runs_in_a_directory_are_told_apart(tmp_path):
    outer = counting().add(Journal(tmp_path))
    inner = counting().add(Journal(tmp_path))
    outer.on(Events.ITERATION_COMPLETED(at=1))(lambda state: inner.run([1], max_epochs=1))
    outer.run([1, 2], max_epochs=1)
    lines = [(line["event"], line["part"]) for line in journal_of(tmp_path)]
    (_, first), (_, second), *rest = lines
    assert first != second
    assert rest == [("completed", second), ("completed", first)]


def test_every_line_is_json_of_its_own(tmp_path):
    counting().add(Journal(tmp_path, config={"x": float("nan")})).run([1], max_epochs=1)
    for line in (tmp_path / "journal.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
