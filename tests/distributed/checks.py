"""What scripts on ranks have in common: a process group, and checks that all ranks make."""

import gc
from types import FunctionType

from camshaft import ranks


def checks_of(script):
    """Of a script's `globals()`, the functions without arguments whose names are sentences.

    These have four words or more.
    """
    functions = [each for each in script.values() if isinstance(each, FunctionType)]
    plain = [each for each in functions if not each.__code__.co_argcount]
    return [each for each in plain if each.__name__.count("_") >= 3]


def make(script, most=None):
    """Make the checks of a script one after another, and tell of each that it is done."""
    with ranks.process_group("gloo", timeout=60):
        for each in checks_of(script)[:most]:
            each()
            print(f"rank {ranks.rank()}: {each.__name__}", flush=True)
        gc.collect()  # gloo's threads abort if a model on ranks outlives the group
