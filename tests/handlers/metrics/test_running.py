"""What one run measures with."""

import pytest
import torchmetrics

from camshaft.handlers.metrics.running import Running


def test_what_was_given_is_copied_and_functions_are_not():
    metric = torchmetrics.SumMetric()
    running = Running.of({"sum": metric, "abs": abs}, skip_nan=False)
    running.update((3.0,))
    running.add((-3.0,), 2)
    assert running.results() == {"abs": 3.0, "sum": 3.0}
    assert metric.update_count == 0
    running.reset()
    running.update((1.0,))
    assert running.results() == {"sum": 1.0}


def test_other_metrics_than_those_that_were_saved_are_refused():
    saved = Running.of({"abs": abs}, skip_nan=False).state_dict()
    with pytest.raises(ValueError, match=r"Metrics has \['n'\] and the saved run had \['abs'\]"):
        Running.of({"n": abs}, skip_nan=False).load_state_dict(saved)
