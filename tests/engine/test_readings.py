"""The latest value of every metric."""

import pickle

import pytest

from camshaft.engine.readings import Readings


def test_a_metric_that_nothing_produced_is_an_error_that_lists_those_there_are():
    readings = Readings(loss=1.0, accuracy=0.5)
    with pytest.raises(KeyError, match="no metric 'val/loss' .* there is: 'loss', 'accuracy'"):
        readings["val/loss"]
    with pytest.raises(KeyError, match="none yet"):
        Readings()["loss"]
    assert readings.get("val/loss") is None


def test_readings_know_what_is_new_however_they_were_written():
    readings = Readings(loss=1.0)
    seen = readings.writes
    assert readings.since(seen) == {}
    readings["loss"] = 1.0
    readings.update({"lr": 0.1}, accuracy=0.5)
    assert readings.since(seen) == {"loss": 1.0, "lr": 0.1, "accuracy": 0.5}
    readings |= {"late": 1}
    assert readings.since(seen)["late"] == 1
    assert readings.setdefault("first", 3) == 3
    assert readings.since(seen)["first"] == 3


def test_a_metric_that_is_taken_out_is_gone():
    readings = Readings(loss=1.0)
    assert readings.pop("loss") == 1.0
    assert readings.since(0) == {}


def test_readings_can_be_sent_to_another_process():
    readings = pickle.loads(pickle.dumps(Readings(loss=1.0)))
    assert readings == {"loss": 1.0}
    assert readings.since(0) == {"loss": 1.0}
