"""Runs that hypothesis makes up, left at moments that it makes up, are the runs that were not."""

import time

import pytest
from random_runs.draws import SOURCES, scripts
from random_runs.look import Look

# What is drawn may be what scripts are warned of; torchdata uses what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore")
EACH = {"workers": 4} | dict.fromkeys(set(SOURCES) - {"workers"}, 10)
"""The draws of each source in CI, over 100 together: none waits for its turn in a larger draw."""


def test_a_few_runs_left_anywhere_are_the_whole_runs():
    Look().at(scripts(), 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(each, marks=pytest.mark.soak if number % 3 else ())
        for number, each in enumerate(SOURCES)
    ],
)
def test_a_hundred_runs_left_anywhere_are_the_whole_runs(source):
    Look().at(scripts(SOURCES[source]), EACH[source], seeded=[*SOURCES].index(source))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_runs_left_anywhere_are_the_whole_runs():
    look = Look()
    look.at(scripts(), 20_000, seeded=None)
    print(look.counts)


@pytest.mark.slow
def test_after_a_difference_a_smaller_run_is_looked_for_for_a_bounded_time(capsys):
    calls = []

    def differs(plan, kills):
        calls.append(plan)
        time.sleep(0.05)
        raise AssertionError("other weights")

    with pytest.raises(AssertionError, match="other weights"):
        Look(shrinking=0.2, check=differs).at(scripts(), 25)
    assert 1 <= len(calls) <= 5
    assert capsys.readouterr().out.startswith("check(Plan(data=")
