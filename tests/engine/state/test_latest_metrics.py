"""The latest value of every metric."""

import pickle

import pytest

from camshaft.engine.state import LatestMetrics


def test_a_metric_that_nothing_produced_is_an_error_that_lists_those_there_are():
    readings = LatestMetrics(loss=1.0, accuracy=0.5)
    with pytest.raises(KeyError, match="no metric 'val/loss' .* there is: 'loss', 'accuracy'"):
        readings["val/loss"]
    with pytest.raises(KeyError, match="none yet"):
        LatestMetrics()["loss"]
    assert readings.get("val/loss") is None


def test_readings_know_what_is_new_however_they_were_written():
    readings = LatestMetrics(loss=1.0)
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
    readings = LatestMetrics(loss=1.0)
    assert readings.pop("loss") == 1.0
    assert readings.since(0) == {}


def test_readings_can_be_sent_to_another_process():
    readings = pickle.loads(pickle.dumps(LatestMetrics(loss=1.0)))
    assert readings == {"loss": 1.0}
    assert readings.since(0) == {"loss": 1.0}


def test_a_value_of_an_earlier_iteration_is_not_fresh():
    readings = LatestMetrics(loss=1.0)
    assert readings.fresh("loss") == 1.0
    readings.iteration = 7
    with pytest.raises(LookupError, match="'loss' was last written in iteration 0.* iteration 7"):
        readings.fresh("loss")
    readings["loss"] = 2.0
    assert readings.fresh("loss") == 2.0
    with pytest.raises(KeyError, match="no metric 'val' .* there is: 'loss'"):
        readings.fresh("val")


def test_no_value_is_new_twice_and_an_old_one_only_where_that_is_allowed():
    readings = LatestMetrics(loss=1.0)
    assert readings.is_new("loss", 0)
    looked_at = readings.written("loss")
    assert not readings.is_new("loss", looked_at)
    readings.iteration = 1
    for look in (0, looked_at):
        with pytest.raises(LookupError, match="allow_stale=True"):
            readings.is_new("loss", look)
    assert readings.is_new("loss", 0, allow_stale=True)
    assert not readings.is_new("loss", looked_at, allow_stale=True)
    assert not readings.is_new("val/loss", 0, allow_stale=True)
    with pytest.raises(KeyError, match="no metric 'val/loss' .* by the same when="):
        readings.is_new("val/loss", 0)


def test_how_old_a_value_is_is_saved_and_of_older_checkpoints_it_is_not_known():
    readings = LatestMetrics(loss=1.0)
    readings.iteration = 3
    saved = readings.state_dict()
    again = LatestMetrics()
    again.iteration = 3
    again.load_state_dict(saved)
    with pytest.raises(LookupError):
        again.fresh("loss")
    del saved["iterations"]
    again.load_state_dict(saved)
    assert again.fresh("loss") == 1.0


def test_who_looks_before_anything_is_measured_is_told_what_to_do():
    readings = LatestMetrics(loss=1.0)
    with pytest.raises(KeyError, match="there is: 'loss'. If it comes later, look at it when"):
        readings.is_new("val/loss", 0)
    assert not readings.is_new("val/loss", 0, allow_stale=True)
