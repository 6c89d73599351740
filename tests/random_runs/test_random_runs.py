"""Runs that hypothesis makes up, left at moments that it makes up, are the runs that were not."""

import logging
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from random_runs.attempts import compare, tell
from random_runs.draws import KILLS, plans

SHARED = Path("/dev/shm")
CHECKS = list(HealthCheck)


def draws(number, **options):
    return settings(max_examples=number, suppress_health_check=CHECKS, deadline=None, **options)


COUNTS = Counter()


def check(plan, kills):
    logging.getLogger("camshaft").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(dir=SHARED if SHARED.is_dir() else None) as root:
        root = Path(root)
        warnings.simplefilter("ignore")
        whole = tell(plan, root / "whole")
        parts = tell(plan, root / "parts", kills, whole.counts)
        COUNTS.update(parts.kills)
        COUNTS["draws"] += 1
        COUNTS["resumes"] += parts.resumes
        assert compare(whole, parts) is None


@given(plan=plans(), kills=KILLS)
@draws(30, derandomize=True)
def test_a_few_runs_left_anywhere_are_the_whole_runs(plan, kills):
    check(plan, kills)


@pytest.mark.slow
@given(plan=plans(), kills=KILLS)
@draws(300, derandomize=True)
def test_hundreds_of_runs_left_anywhere_are_the_whole_runs(plan, kills):
    check(plan, kills)
