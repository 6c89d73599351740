"""What scripts on ranks have in common: a process group, and checks that all ranks make."""

import gc
from types import FunctionType

from camshaft import ranks


def make(checks):
    """Make these checks one after another, and tell of each that it is done.

    Of a script's `globals()`, they are the functions without arguments whose names are sentences,
    of four words or more.
    """
    if isinstance(checks, dict):
        functions = [each for each in checks.values() if isinstance(each, FunctionType)]
        plain = [each for each in functions if not each.__code__.co_argcount]
        checks = [each for each in plain if each.__name__.count("_") >= 3]
    with ranks.process_group("gloo", timeout=60):
        for each in checks:
            each()
            print(f"rank {ranks.rank()}: {each.__name__}", flush=True)
        gc.collect()  # gloo's threads abort if a model on ranks outlives the group
