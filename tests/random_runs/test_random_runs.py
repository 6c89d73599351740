"""Runs that hypothesis makes up, left at moments that it makes up, are the runs that were not."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from random_runs.attempts import check
from random_runs.draws import KILLS, plans

# What is drawn may be what scripts are warned of; torchdata uses what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore")
COUNTS = Counter()


def draws(number, **options):
    return settings(max_examples=number, suppress_health_check=list(HealthCheck), **options)


def left(plan, kills):
    story = check(plan, kills)
    COUNTS.update(story.kills + Counter(draws=1, resumes=story.resumes))


@given(plan=plans(), kills=KILLS)
@draws(25, derandomize=True)
def test_a_few_runs_left_anywhere_are_the_whole_runs(plan, kills):
    left(plan, kills)


@pytest.mark.slow
@given(plan=plans(), kills=KILLS)
@draws(300, derandomize=True)
def test_hundreds_of_runs_left_anywhere_are_the_whole_runs(plan, kills):
    left(plan, kills)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_runs_left_anywhere_are_the_whole_runs(pytestconfig):
    COUNTS.clear()

    @given(plan=plans(), kills=KILLS)
    @draws(20_000, print_blob=True)
    def look(plan, kills):
        left(plan, kills)

    look()
    print(dict(COUNTS))
