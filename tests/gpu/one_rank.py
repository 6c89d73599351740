"""One rank of a process group, with NCCL on a GPU: DDP and FSDP2, whole, and in two runs."""

import json
import sys
from hashlib import sha256
from pathlib import Path

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from camshaft import Events, ranks, supervised
from camshaft.handlers import EMA, Average, Checkpoint, ClipGradNorm, NonFiniteGuard
from camshaft.handlers.checkpoint import checkpoints


def made(way, device):
    torch.manual_seed(0)
    layers = (nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    model = nn.Sequential(*layers).to(device)
    if way == "ddp":
        return DistributedDataParallel(model)
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = init_device_mesh(device.type, (1,))
    for part in (model[0], model[3], model):
        fully_shard(part, mesh=mesh, mp_policy=bf16)
    return model


def run(way, device, directory, stop=None):
    """What a run ends with, and its losses; it is interrupted after so many iterations."""
    model = made(way, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def loss_fn(output, target):
        return nn.functional.cross_entropy(output.float(), target)

    engine = supervised(model, optimizer, loss_fn, device=device, accumulate=2)
    engine.add(
        *(ClipGradNorm(1.0), NonFiniteGuard("raise"), Average("loss", over=3), EMA(0.9)),
        Checkpoint(directory, when=Events.ITERATION_COMPLETED(every=4), resume=True),
    )
    losses = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: losses.append(state.metrics["loss"]))
    if stop:
        engine.on(Events.ITERATION_COMPLETED(at=stop))(lambda state: state.interrupt("enough"))
    draw = torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(8, 16, generator=draw), torch.randint(4, (8,), generator=draw))
        for _ in range(12)
    ]
    torch.manual_seed(99 if stop is None and directory.exists() else 2)
    engine.run(batches, max_epochs=1)
    saved = checkpoints(directory).latest()
    held = [saved.state_dict(name) for name in ("model", "ema", "optimizer")]
    leaves = torch.utils._pytree.tree_leaves(held)
    found = [each.tolist() if isinstance(each, torch.Tensor) else each for each in leaves]
    digest = sha256(repr(found).encode()).hexdigest()
    return digest, [each.item() for each in losses]


def main(kind, directory):
    torch.use_deterministic_algorithms(True)
    with ranks.process_group("gloo" if kind == "cpu" else None):
        device = torch.device(kind, torch.cuda.current_device()) if kind == "cuda" else None
        said = {"backend": torch.distributed.get_backend()}
        for way in ("ddp", "fsdp"):
            place, where = directory / way, device or torch.device("cpu")
            whole = run(way, where, place / "whole")
            first = run(way, where, place / "parts", stop=6)
            rest = run(way, where, place / "parts")
            is_same = rest[0] == whole[0] and first[1] + rest[1] == whole[1]
            said[way] = [is_same, len(first[1]), len(rest[1])]
        print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
