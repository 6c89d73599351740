"""Run on three ranks, each of which removes a share of old checkpoints; rank 2 may be killed.

dealt_on_ranks.py DIRECTORY [kill]: in the removal after the third save, after its first file.
"""

import json
import os
import signal
import sys

from torch import nn

from camshaft import Engine, Events, ranks
from camshaft.handlers import Checkpoint, latest
from camshaft.handlers.checkpoint.save import team


def main():
    directory, *kill = sys.argv[1:]
    removed = []

    def hear(event, arguments):
        if event == "os.remove" and "/.del-" in str(arguments[0]):
            if kill and ranks.rank() == 2 and removed:
                os.kill(os.getpid(), signal.SIGKILL)
            removed.append(os.path.basename(arguments[0]))

    team.SHARE = 1
    sys.addaudithook(hear)
    handler = Checkpoint(
        directory, when=Events.ITERATION_COMPLETED, keep=latest(1), resume=True, retries=0
    )
    engine = Engine(lambda state, batch: None, objects={"model": nn.Linear(40, 30)})
    engine.add(handler)
    state = engine.run(range(4), max_epochs=1)
    print(json.dumps([state.iteration, removed]))


if __name__ == "__main__":
    with ranks.process_group("gloo"):
        main()
