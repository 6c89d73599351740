"""What scripts on ranks have in common: a process group, and checks that all ranks make."""

import gc

from camshaft import ranks


def make(checks):
    """Make these checks one after another, and tell of each that it is done."""
    with ranks.process_group("gloo", timeout=60):
        for each in checks:
            each()
            print(f"rank {ranks.rank()}: {each.__name__}", flush=True)
        gc.collect()  # gloo's threads abort if a model on ranks outlives the group
