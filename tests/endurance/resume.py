"""What it takes to resume runs of `million.py`, in counts; the first of them fills the caches."""

import argparse
import gc
import json
import sys
from collections import Counter
from pathlib import Path

from million import ready

from camshaft import Events


def bytes_read():
    return int(Path("/proc/self/io").read_text().split()[1])


def resumed(directory, end):
    """The calls, and the bytes read, from `run` to the end of the first iteration."""
    engine, _, loader = ready(directory, resume=True)
    calls, found = Counter(), {}

    @engine.on(Events.ITERATION_COMPLETED)
    def stop(state):
        sys.setprofile(None)
        if not found:
            found.update(iteration=state.iteration, read=bytes_read() - before)
        state.stop("resumed", resumable=True)

    gc.collect()
    gc.disable()  # what a collection calls is nobody's doing here
    before = bytes_read()
    sys.setprofile(lambda frame, event, argument: calls.update([event]))
    try:
        engine.run(loader, max_iterations=end)
    finally:
        sys.setprofile(None)
        gc.enable()
    return found | {"calls": calls["call"], "c_calls": calls["c_call"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("end", type=int, help="what the runs had as max_iterations")
    parser.add_argument("directories", nargs="+", type=Path)
    options = parser.parse_args()
    for each in options.directories:
        print(json.dumps(resumed(each, options.end)), flush=True)


if __name__ == "__main__":
    main()
