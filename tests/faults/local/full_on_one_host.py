"""Run as one of three ranks with a disk each: the disk of the last is full at the second save.

The argument is a folder; each prints the seconds from the first iteration to the end.
"""

import sys
import time
from errno import ENOSPC
from pathlib import Path

from torch import nn

from camshaft import Engine, Events, ranks
from camshaft.handlers import LocalCheckpoint


@ranks.process_group("gloo", timeout=60)
def main(folder):
    directory = Path(folder) / f"host-{ranks.rank()}"
    engine = Engine(lambda state, batch: None, objects={"model": nn.Linear(1, 1)})
    every = Events.ITERATION_COMPLETED
    engine.add(LocalCheckpoint(directory, when=every, retries=0, on_failure="warn"))
    began = []

    def fill(event, arguments):
        is_here = event == "open" and str(arguments[0]).startswith(f"{directory}/.tmp-iteration")
        if is_here and "0000000002-" in str(arguments[0]) and arguments[2] & 3:
            raise OSError(ENOSPC, "No space left on device")

    if ranks.rank() == 2:
        sys.addaudithook(fill)
    engine.on(Events.ITERATION_STARTED)(lambda state: began.append(time.monotonic()))
    engine.run(range(4), max_epochs=1)
    print(time.monotonic() - began[0])


main(*sys.argv[1:])
