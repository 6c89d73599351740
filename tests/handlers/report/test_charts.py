"""Which metrics share a chart."""

import pytest

from camshaft.handlers.report.charts import charts


def titles(*names):
    return {chart.title: chart.metrics for chart in charts(names)}


def test_training_and_validation_of_one_metric_share_a_chart():
    assert titles("val/loss", "loss", "accuracy", "val/accuracy") == {
        "loss": ["loss", "val/loss"],
        "accuracy": ["accuracy", "val/accuracy"],
    }
    assert titles("train/loss", "val/loss", "test/loss") == {
        "loss": ["train/loss", "test/loss", "val/loss"]
    }


def test_a_set_of_any_name_counts_if_its_metrics_are_there_without_it():
    assert titles("loss", "holdout/loss", "holdout/f1") == {
        "loss": ["loss", "holdout/loss"],
        "f1": ["holdout/f1"],
    }
    assert titles("norm/fc1", "mean/fc1") == {"norm/fc1": ["norm/fc1"], "mean/fc1": ["mean/fc1"]}


def test_validated_ones_are_told_from_trained_ones():
    (chart,) = charts(["train/loss", "val/loss"])
    assert chart.validated == ["val/loss"]


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        *(("loss", "Learning"), ("val/f1", "Learning"), ("grad_norm", "More metrics")),
        *(
            ("loss/mean", "Learning"),
            ("mfu", "Rate and throughput"),
            ("step_time", "Rate and throughput"),
        ),
        *(("lr", "Rate and throughput"), ("lr/head", "Rate and throughput")),
        *(("samples_per_second", "Rate and throughput"), ("gpu/memory", "Rate and throughput")),
        *(("colour", "More metrics"), ("multirate", "More metrics")),
    ],
)
def test_a_chart_stands_under_its_heading(name, heading):
    assert charts([name])[0].heading == heading


def test_the_loss_comes_first_and_the_rate_is_never_smoothed():
    drawn = charts(["lr", "accuracy", "val/accuracy", "loss"])
    assert [chart.title for chart in drawn] == ["loss", "accuracy", "lr"]
    assert [chart.is_smoothed for chart in drawn] == [True, True, False]


def test_no_metric_gets_lost_whatever_it_is_called():
    names = ["/", "a/", "/a", "a//b", "", "val/", "val", "</script>", "val/val/loss", "loss"]
    drawn = [name for chart in charts(names) for name in chart.metrics]
    assert sorted(drawn) == sorted(names)
