"""Weights & Biases without a network: its files, read back by its own messages."""

import json
import struct

import pytest

from camshaft.handlers.loggers import WandB

from .runs import EACH, HPARAMS, engine_of, fail_and_resume

wandb = pytest.importorskip("wandb", reason='needs pip install "camshaft[wandb]"')
pytestmark = pytest.mark.filterwarnings("ignore")  # of its own making
BLOCK = 32768  # the files are LevelDB's logs


@pytest.fixture(autouse=True)
def silent(monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CONSOLE", "off")


def frames(data):
    """The messages of a file: its head has 7 bytes, and a message may lie in several blocks."""
    at, message = 7, b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        message += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield message
            message = b""


def read(directory):
    """The ids, configurations and rows of all files in the order of their making."""
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # as the end of the process does: its own process may still be writing
    ids, configuration, rows = [], {}, []
    for path in sorted(directory.glob("wandb/offline-run-*/*.wandb")):
        for message in frames(path.read_bytes()):
            record = Record.FromString(message)
            if record.HasField("run"):
                ids.append(record.run.run_id)
                pairs = record.run.config.update
                configuration |= {each.key: json.loads(each.value_json) for each in pairs}
            elif record.HasField("history"):
                items = record.history.item
                rows.append({"/".join(e.nested_key): json.loads(e.value_json) for e in items})
    return ids, configuration, rows


def build(directory, fail_at=None, **arguments):
    options = {"mode": "offline"}
    logger = WandB("tests", directory=directory, when=EACH, options=options, **arguments)
    return engine_of(logger, fail_at)


def test_rows_configuration_and_media_are_there(tmp_path):
    build(tmp_path, hparams=HPARAMS).run(range(3), max_epochs=1)
    [identity], configuration, rows = read(tmp_path)
    assert len(identity) == 32
    assert configuration["lr"] == 0.1
    assert configuration["model"] == {"width": 8}
    clocks = [(row["_step"], row["iteration"], row["step"], row["epoch"]) for row in rows]
    assert clocks == [(1, 1, 0, 1), (2, 2, 0, 1), (3, 3, 0, 1)]
    assert [row["loss"] for row in rows] == pytest.approx([1, 1 / 2, 1 / 3])
    assert rows[1]["note"] == "words"
    assert rows[1]["seen/_type"] == "image-file"
    assert rows[1]["seen/caption"] == "noise"
    assert sum(rows[1]["weights/values"]) == 9


def test_a_resumed_run_has_the_same_id_and_no_step_twice_or_missing(tmp_path):
    def process(fail_at=None):
        wandb.teardown()  # what an earlier process did as it ended
        return build(tmp_path, fail_at)

    fail_and_resume(process)
    ids, _, rows = read(tmp_path)
    assert len(set(ids)) == 1
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 2
    by_step = {}
    for row in rows:  # what comes twice, in two files, is the same to the last bit
        mine = (row["iteration"], row["loss"])
        assert by_step.setdefault(row["_step"], mine) == mine
    assert [iteration for iteration, _ in by_step.values()] == list(range(1, 9))
