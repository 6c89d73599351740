"""Run on ranks: chunks are small here, so checksums are folded and the manifest has columns."""

import json
import sys

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss

from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint, latest
from camshaft.handlers.checkpoint.directory import files, verify, write
from camshaft.handlers.checkpoint.format import checksums, manifest

DATA = [(torch.full((4, 64), each), torch.full((4, 64), each)) for each in (0.5, -0.25, 1.0)]


def make_small():
    for module in (checksums, verify, files):
        module.CHUNK = 64
    checksums.MOST_CHECKSUMS = write.MOST_CHECKSUMS = 16
    checksums.MANY = manifest.MANY = write.MANY = 1


def measure_much(state):
    if ranks.rank() == 0:
        for n in range(40_000):
            state.metrics[f"{'a long name ' * 8}{n}"] = 0.5


if __name__ == "__main__":
    directory, until, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    with ranks.process_group(timeout=30):
        torch.manual_seed(0)
        if how != "plain":
            make_small()
        model = nn.Sequential(nn.Linear(64, 33), nn.Linear(33, 64))
        if ranks.world_size() > 1:
            for each in (*model, model):
                fully_shard(each)
        engine = supervised(model, torch.optim.Adam(model.parameters(), 0.125), mse_loss)
        each = Events.ITERATION_COMPLETED
        engine.add(Checkpoint(directory, when=each, keep=latest(2), resume=True))
        if how == "much":
            engine.on(each(at=3))(measure_much)
        said = ""
        try:
            engine.run(DATA, max_iterations=until)
        except (OSError, RuntimeError) as error:  # of this rank, or of another one
            said = str(error)
        weights = [
            getattr(each, "full_tensor", lambda each=each: each)().tolist()
            for each in model.parameters()
        ]
        print(json.dumps([said, weights]), flush=True)
