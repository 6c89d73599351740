"""SwanLab without a network: its files, read back by its own reader and messages."""

from functools import partial
from importlib.metadata import PackageNotFoundError, version

import pytest

from camshaft.handlers.loggers import SwanLab

from .runs import EACH, HPARAMS, engine_of, fail_and_resume


def is_there():
    """True for a version that takes ids; it is not imported, which older ones warn about."""
    try:
        return tuple(map(int, version("swanlab").split(".")[:2])) >= (0, 10)
    except PackageNotFoundError:
        return False


pytestmark = [
    pytest.mark.skipif(not is_there(), reason='needs pip install "camshaft[swanlab]"'),
    pytest.mark.filterwarnings("ignore"),  # of its own making
]


def read(directory):
    """The ids, the values by their names and iterations, and the names of media of all files."""
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    ids, values, media = [], [], []
    for path in sorted(directory.glob("run-*/*.swanlab"), key=lambda path: path.stat().st_mtime):
        reader = DataStoreReader()
        reader.open(path)
        for message in reader:
            record = Record.FromString(message)
            if record.HasField("start"):
                ids.append(record.start.id)
            elif record.HasField("scalar"):
                scalar = record.scalar
                values.append((scalar.key, scalar.step, scalar.value.number))
            elif record.HasField("media"):
                media.append((record.media.key, record.media.step))
        reader.close()
    return ids, values, media


def build(directory, fail_at=None, **arguments):
    options = {"mode": "offline"}
    logger = SwanLab("tests", directory=directory, when=EACH, options=options, **arguments)
    return engine_of(logger, fail_at, ("note", "seen"))


@pytest.mark.slow
def test_rows_configuration_and_media_are_there(tmp_path):
    build(tmp_path, hparams=HPARAMS).run(range(3), max_epochs=1)
    [identity], values, media = read(tmp_path)
    assert len(identity) == 32
    losses = [(step, value) for name, step, value in values if name == "loss"]
    assert losses == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert [(step, value) for name, step, value in values if name == "epoch"] == [
        *((1, 1), (2, 1), (3, 1))
    ]
    assert sorted(media) == [("note", 2), ("seen", 2)]
    [config] = tmp_path.glob("run-*/files/config.yaml")
    assert "width: 8" in config.read_text()


@pytest.mark.slow
def test_a_resumed_run_has_the_same_id_and_no_iteration_missing(tmp_path):
    fail_and_resume(partial(build, tmp_path))
    ids, values, _ = read(tmp_path)
    assert len(ids) == 2
    assert len(set(ids)) == 1
    found = {}
    for name, step, value in values:  # what comes twice, in two files, is the same
        assert found.setdefault((name, step), value) == value
    assert [step for name, step in found if name == "loss"] == list(range(1, 9))


@pytest.mark.slow
def test_a_run_of_ones_own_is_left_alone_with_one_warning(tmp_path, caplog):
    import swanlab

    mine = swanlab.init(project="mine", mode="offline", log_dir=str(tmp_path / "mine"))
    assert build(tmp_path / "other").run(range(3), max_epochs=1).iteration == 3
    [warning] = [each for each in caplog.records if each.name == "camshaft"]
    assert "SwanLab could not be opened" in warning.getMessage()
    mine.log({"loss": 1.0}, step=1)
    mine.finish()
    [_], values, _ = read(tmp_path / "mine")
    assert values == [("loss", 1, 1.0)]
