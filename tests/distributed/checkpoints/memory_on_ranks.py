"""Run on ranks: how much memory a save and a load of a sharded model take beside the shards."""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from camshaft import Engine, ranks
from camshaft.handlers import Checkpoint

STATUS = Path("/proc/self/status")


def peak():
    """The most memory of this process's own since the last look, in bytes."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    most = int(lines["VmHWM"].split()[0]) * 1024
    Path("/proc/self/clear_refs").write_text("5")
    return most


def engine_of(directory, width, layers):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    if ranks.world_size() > 1:
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    handler = Checkpoint(directory, resume=True, background=False)
    return Engine(lambda state, batch: None, handler, objects={"model": model})


if __name__ == "__main__":
    directory, width, layers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with ranks.process_group():
        engine_of(f"{directory}/warm", 8, 1).run([1], max_epochs=1)
        engine = engine_of(f"{directory}/run", width, layers)
        peak()
        before = peak()
        engine.run([1], max_epochs=1)
        saved = peak() - before
        engine = engine_of(f"{directory}/run", width, layers)
        peak()
        before = peak()
        engine.run([1], max_epochs=1)  # loads, and has nothing to do
        print(json.dumps({"saved": saved, "loaded": peak() - before}), flush=True)
