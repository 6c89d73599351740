"""Run on two ranks: rank 1 is late with its part of a save, and rank 0 gives it up."""

import json
import sys
import time

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss

from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint
from camshaft.handlers.checkpoint import checkpoints

TIMEOUT = 8
LATE = [TIMEOUT + 1, 1]
"""Seconds by which rank 1 is late with its first save, and with its second."""


def hear(event, arguments):
    is_written = event == "open" and isinstance(arguments[0], str) and arguments[2] & 3
    if is_written and arguments[0].endswith("rank-00001.safetensors") and LATE:
        time.sleep(LATE.pop(0))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with ranks.process_group(timeout=TIMEOUT):
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        fully_shard(model)
        engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss)
        handler = Checkpoint(sys.argv[1], when=Events.EPOCH_COMPLETED, retries=0, on_failure="warn")
        engine.add(handler)
        engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.save("by hand"))
        sys.addaudithook(hear)
        engine.run([(torch.ones(1, 4), torch.ones(1, 4))] * 2, max_epochs=1)
        found = [
            (each.manifest.iteration, each.manifest.reason) for each in checkpoints(sys.argv[1])
        ]
        print(json.dumps(found), flush=True)
