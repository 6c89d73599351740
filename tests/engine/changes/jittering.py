"""A user's module: a function that draws from a generator of its module."""

import random

rng = random.Random(3)


def jitter():
    return rng.random()
