"""Comet without a network: its archives, read back."""

import json
import zipfile
from functools import partial

import pytest

from camshaft import Engine
from camshaft.handlers.loggers import Comet

from .runs import EACH, HPARAMS, engine_of, fail_and_resume

pytestmark = pytest.mark.filterwarnings("ignore")  # of its own making


@pytest.fixture(scope="module", autouse=True)
def library():
    """Imported when a test is run: to import it takes seconds."""
    pytest.importorskip("comet_ml", reason='needs pip install "camshaft[comet]"')


def read(directory):
    """The keys, the values by names and steps, the parameters and the files of all archives."""
    keys, values, parameters, files = [], [], {}, []
    for path in sorted(directory.glob("*.zip"), key=lambda path: path.stat().st_mtime):
        with zipfile.ZipFile(path) as archive:
            keys.append(json.loads(archive.read("experiment.json"))["offline_id"])
            for line in archive.read("messages.json").splitlines():
                content = json.loads(line)["payload"]
                if metric := content.get("metric"):
                    values.append((metric["metricName"], metric["step"], metric["metricValue"]))
                elif parameter := content.get("param"):
                    parameters[parameter["paramName"]] = parameter["paramValue"]
                elif more := content.get("additional_params"):
                    files.append((more.get("figName") or more.get("type"), more["step"]))
    return keys, values, parameters, files


def build(directory, fail_at=None, **arguments):
    logger = Comet("tests", directory=directory, when=EACH, options={"online": False}, **arguments)
    return engine_of(logger, fail_at, ("note", "seen"))


@pytest.mark.slow
def test_a_resumed_run_is_the_same_experiment_with_no_row_missing(tmp_path):
    fail_and_resume(partial(build, tmp_path, hparams=HPARAMS))
    keys, values, parameters, files = read(tmp_path)
    assert (len(keys), len(set(keys))) == (2, 1)
    found = {}
    for name, step, value in values:  # what comes twice, in two archives, is the same
        if name == "loss":
            assert found.setdefault(step, value) == value
    assert found == {number: pytest.approx(1 / number) for number in range(1, 9)}
    assert (parameters["lr"], parameters["model|width"]) == (0.1, 8)
    assert {("seen", 2), ("text-sample", 2)} <= {*files}


def test_a_wrong_option_costs_a_warning_and_not_the_run(tmp_path, caplog):
    engine = Engine(lambda state, batch: None)
    engine.add(Comet("tests", directory=tmp_path, options={"online": False, "no_such_option": 1}))
    assert engine.run(range(3), max_epochs=1).iteration == 3
    assert "Comet could not be opened" in caplog.text
