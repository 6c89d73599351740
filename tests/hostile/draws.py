"""Draws of attacks, each batch in a process of its own."""

import time
from collections import Counter

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st


def drawn(draws, number):
    """Hypothesis draws so often, from this seed on, and remembers nothing."""
    options = settings(
        max_examples=draws,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: seed(number)(options(given(st.data())(test)))


def run_draws(hostile, check, draws, first=0, batch=200):
    """What was wrong in many draws; `check(draws, number)` counts what was read and was wrong."""
    seen, wrong, began = Counter(), Counter(), time.monotonic()
    for number in range(first, first + -(-draws // batch)):
        told = hostile.in_child(lambda n=number: check(min(draws, batch), n))
        seen.update(told["seen"])
        wrong.update(told["wrong"])
        if wrong:
            print(number, told["wrong"], flush=True)
    print(sum(seen.values()), "readings", round(time.monotonic() - began), "s", dict(seen))
    return wrong
