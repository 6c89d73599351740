"""Run on two ranks: pretrained weights go into a sharded model; each rank reads its own part."""

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss

from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint, load_matching
from camshaft.handlers.checkpoint import checkpoints

WIDTH, BYTES = 4096, 4096 * 4096 * 4
STATUS = Path("/proc/self/status")
READ = [0]


def counted(preadv):
    def read(*arguments):
        count = preadv(*arguments)
        READ[0] += count
        return count

    return read


os.preadv = counted(os.preadv)


def made(width, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(width, width, bias=False))
    fully_shard(model)
    return model


def peak():
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    Path("/proc/self/clear_refs").write_text("5")
    return int(lines["VmHWM"].split()[0]) * 1024


def rise(source):
    """How much the memory of this rank rises when it loads, and whether it has loaded its part."""
    model = made(WIDTH)
    peak()
    before = peak()
    load_matching(model, source)
    rose = peak() - before
    own = model[0].weight.to_local()
    first = ranks.rank() * WIDTH // 2
    rows = torch.arange(first, first + WIDTH // 2, dtype=torch.float32)
    assert (own == rows[:, None]).all()
    return rose


def of_files(base):
    if ranks.rank() == 0:
        state = {"0.weight": torch.arange(WIDTH).float()[:, None].expand(WIDTH, WIDTH).contiguous()}
        save_file(state, f"{base}/large.safetensors")
        torch.save({"model": state}, f"{base}/large.pt")
    ranks.any_rank(False)
    return {kind: rise(f"{base}/large.{kind}") for kind in ("safetensors", "pt")}


def of_checkpoints(base):
    """Of the newest good one of two checkpoints, in pieces; the newest has a flipped byte."""
    model = made(600)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss)
    engine.add(Checkpoint(f"{base}/run", when=Events.ITERATION_COMPLETED))
    kept = []
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: kept.append(model[0].weight.to_local().clone())
    )
    engine.run([(torch.ones(1, 600), torch.ones(1, 600))] * 2, max_epochs=1)
    found = {}
    newest = checkpoints(f"{base}/run")[-1]
    for name, source in {
        "saved": newest,
        "path": str(newest.path),
        "folder": f"{base}/run",
    }.items():
        fresh, READ[0] = made(600, seed=1), 0
        load_matching(fresh, source)
        found[name] = torch.equal(fresh[0].weight.to_local(), kept[1]), READ[0]
    ranks.any_rank(False)
    if ranks.rank() == 0:
        with open(newest.path / "rank-00001.safetensors", "r+b") as file:
            file.seek(-1, 2)
            file.write(b"\x99")
    ranks.any_rank(False)
    fresh = made(600, seed=1)
    load_matching(fresh, f"{base}/run")
    found["passed over"] = torch.equal(fresh[0].weight.to_local(), kept[0])
    try:
        load_matching(fresh, newest)
    except Exception as error:
        found["refused"] = f"{type(error).__name__}: {error}"
    return found | {"size": newest.manifest.size}


if __name__ == "__main__":
    torch.set_num_threads(1)
    with ranks.process_group():
        told = of_files(sys.argv[1]) | of_checkpoints(sys.argv[1])
        print(json.dumps(told), flush=True)
