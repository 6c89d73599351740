"""Ranks that share one order of samples are told if they have other samples."""

from pathlib import Path

import pytest


@pytest.mark.slow
def test_ranks_that_number_labels_otherwise_are_told_of_by_the_first_rank(processes):
    results = processes.run_ranks(2, Path(__file__).with_name("numbered_on_ranks.py"))
    said = "the same index gives other values on another rank"
    _, *parts = results[0].stderr.split("alike ")
    for part in parts:  # without workers, and with two
        alike, otherwise = part.split("otherwise ")
        assert said not in alike
        assert otherwise.count(said) == 1
    assert len(parts) == 2
    assert said not in results[1].stderr
