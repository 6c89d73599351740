"""The journal: what happened to a run, over all of its parts, and at no risk to it."""

import copy
import enum
import json
import logging
import os
import pickle
import platform
import subprocess
from argparse import Namespace
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Journal, checkpoints
from camshaft.handlers.common import plain
from camshaft.handlers.journal import is_written
from camshaft.handlers.journal.environment import environment
from camshaft.handlers.journal.file import JournalFile
from camshaft.handlers.tools.report import read_journal


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


def test_a_fork_tells_the_checkpoint_that_it_comes_from(tmp_path):
    parent, own = tmp_path / "parent", tmp_path / "fork"
    counting().add(Checkpoint(parent)).run([1, 2], max_epochs=1)
    for epochs in (2, 3):
        engine = counting().add(Checkpoint(own, resume=True, parent=parent), Journal(own))
        state = engine.run([1, 2], max_epochs=epochs)
    engine.run([1, 2], state=state, max_epochs=4)
    begun = [line for line in journal_of(own) if line["event"] == "resumed"]
    found = [checkpoints(parent)[0].path, own / "iteration-0000000004", None]
    assert [line["checkpoint"] for line in begun] == [each and str(each) for each in found]


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
    engine = counting().add(Journal(tmp_path, interval=0.01))

    @engine.on(Events.ITERATION_COMPLETED)
    def look(state):
        if events_of(tmp_path).count("running") == 2:
            state.stop("it is alive")

    engine.run(iter(int, 1), max_epochs=1)
    assert events_of(tmp_path) == ["started", "running", "running", "completed"]


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


CHANGES = {
    "set": lambda config: config.__setitem__("lr", 1.0),
    "delete": lambda config: config.__delitem__("lr"),
    "update": lambda config: config.update(lr=1.0),
    "merge": lambda config: config.__ior__({"lr": 1.0}),
    "default": lambda config: config.setdefault("new", 1.0),
    "pop": lambda config: config.pop("lr"),
    "popitem": lambda config: config.popitem(),
    "clear": lambda config: config.clear(),
    "inside": lambda config: config["model"].update(width=9),
    "element": lambda config: config["model"]["sizes"].append(9),
    "inside of a list": lambda config: config["heads"][0].update(size=9),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_configuration_is_read_only_to_its_depth(change, tmp_path):
    given = {"lr": 0.1, "model": {"sizes": [8, 8]}, "heads": [{"size": 1}]}
    config = Journal(tmp_path, config=given).config
    before = repr(config)
    with pytest.raises((TypeError, AttributeError)):
        change(config)
    assert repr(config) == before
    assert json.loads(json.dumps(config)) == given


@pytest.mark.parametrize("copied", [dict, copy.copy, copy.deepcopy, lambda c: c | {}])
def test_a_copy_of_the_configuration_can_be_changed(copied, tmp_path):
    config = Journal(tmp_path, config={"lr": 0.1, "model": {"width": 8}}).config
    mine = copied(config)
    mine["lr"] = 1.0
    assert (mine["lr"], config["lr"]) == (1.0, 0.1)
    assert pickle.loads(pickle.dumps(config)) == config


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


class Kind(enum.Enum):
    SMALL = "s"


@dataclass
class Inner:
    sizes: tuple[int, ...] = (8, 8)
    kind: Kind = Kind.SMALL


@dataclass
class Outer:
    inner: Inner = field(default_factory=Inner)
    where: Path = Path("runs/one")


class Dumping:
    def model_dump(self):
        return {"lr": 0.1}


def test_whatever_has_names_becomes_a_dict():
    expected = {"inner": {"sizes": [8, 8], "kind": "SMALL"}, "where": "runs/one"}
    assert plain(Outer()) == expected
    assert plain(Namespace(a=1, b=None)) == {"a": 1, "b": None}
    assert plain(OrderedDict({1: {2.5}})) == {"1": [2.5]}
    assert plain(Dumping()) == {"lr": 0.1}


def test_what_has_no_plain_value_is_text():
    assert plain({"f": len, "n": float("nan"), "b": b"x", "c": Inner}) == {
        **{"f": "<built-in function len>", "n": "nan", "b": "b'x'", "c": repr(Inner)}
    }


def test_what_holds_itself_ends():
    endless = {}
    endless["again"] = endless
    assert '"..."' in json.dumps(plain(endless))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_an_integer_without_end_is_text():
    assert plain(10**400) == hex(10**400)
    assert float(plain(-(2**1023)))  # the largest that readers take for a number
    json.dumps(plain(10**9000))


@given(JSON)
def test_plain_values_stay_what_they_are(value):
    assert plain(value) == value


@given(st.recursive(st.floats() | st.binary() | st.complex_numbers(), st.lists, max_leaves=5))
def test_everything_can_be_written_as_json(value):
    json.dumps(plain(value), allow_nan=False)


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


def test_the_first_line_of_each_process_counts_whatever_it_tells(tmp_path, monkeypatch):
    from camshaft.handlers.files import budget

    monkeypatch.setattr(budget, "MOST_IN_EVENTS", 5 * budget.ORDINARY)
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(f'{{"event": "running", "part": {n}}}\n' for n in range(9)))
    assert "has more than 50 values in its events" in read_journal(path).problem


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


def test_it_names_versions_and_machine_but_no_path():
    facts = environment()
    assert facts["python"] == platform.python_version()
    assert facts["torch"] == torch.__version__
    assert facts["ranks"] == "1"
    assert "cores" in facts["devices"] or " x " in facts["devices"]
    assert not [fact for fact in facts.values() if os.sep in fact]


def git(folder, *arguments):
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


def commit_of(processes, script):
    code = "from camshaft.handlers.journal.environment import environment as e;print(e()['commit'])"
    script.write_text(code)
    return processes.run(script, fresh=True).stdout.strip()


def test_it_names_the_commit_of_the_script_and_says_if_a_file_was_changed(processes, tmp_path):
    git(tmp_path, "init")
    (tmp_path / "data").write_text("one")
    git(tmp_path, "add", "data")
    git(tmp_path, "commit", "-m", "first")
    git(tmp_path, "tag", "-a", "v1", "-m", "a tag that is not meant")
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True
    ).stdout.strip()
    assert commit_of(processes, tmp_path / "train.py") == head
    (tmp_path / "data").write_text("two")
    assert commit_of(processes, tmp_path / "train.py") == f"{head}-dirty"
