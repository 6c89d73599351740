"""Whether smaller or larger is better."""

import pytest

from camshaft.handlers import EarlyStopping, RestoreBest, best
from camshaft.handlers.common import mode_of


@pytest.mark.parametrize("monitor", ["val/loss", "score", "val/error", "heatmap", "precise"])
def test_without_a_word_smaller_is_better(monitor):
    assert mode_of("X", monitor, None) == "min"


@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_is_said_counts_whatever_the_name(mode):
    assert mode_of("X", "val/accuracy", mode) == mode
    assert mode_of("X", "val/loss", mode) == mode


@pytest.mark.parametrize("monitor", ["val/accuracy", "val_acc", "F1", "test/top-5 accuracy"])
@pytest.mark.parametrize("make", [EarlyStopping, RestoreBest, lambda monitor: best(1, monitor)])
def test_where_the_name_speaks_for_larger_it_has_to_be_said(make, monitor):
    with pytest.raises(ValueError, match="say which: mode='max' or mode='min'"):
        make(monitor)


@pytest.mark.parametrize("make", [EarlyStopping, RestoreBest])
def test_a_mode_that_is_none_is_refused(make):
    with pytest.raises(ValueError, match="needs 'min' or 'max'"):
        make("val/loss", mode="highest")


def test_who_was_told_nothing_knows_what_it_goes_by():
    assert EarlyStopping("val/loss").mode == RestoreBest("val/loss").mode == "min"
