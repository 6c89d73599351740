"""One run on a device, whole or in parts, in a process of its own; writes a digest of all of it.

With it go dropout, loader workers, pinned memory, averages, a schedule, and saves in the background
while training goes on.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events, supervised
from camshaft.handlers import EMA, SWA, Average, Checkpoint, ClipGradNorm, LRSchedule
from camshaft.handlers.schedules import cosine


def main(device, precision, directory, most, seed):
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    layers = (nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss_fn = nn.functional.cross_entropy
    engine = supervised(model, optimizer, loss_fn, precision=precision, accumulate=2)
    engine.add(
        *(ClipGradNorm(1.0), LRSchedule(cosine()), EMA(0.9), Average("loss", over=5)),
        SWA(when=Events.EPOCH_COMPLETED),
        Checkpoint(directory, when=Events.ITERATION_COMPLETED(every=6), resume=True),
    )
    losses = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: losses.append(state.metrics["loss"]))
    draw = torch.Generator().manual_seed(1)
    data = TensorDataset(
        torch.randn(96, 16, generator=draw), torch.randint(4, (96,), generator=draw)
    )
    torch.manual_seed(seed)
    is_cuda = model[0].weight.is_cuda
    loader = DataLoader(data, 8, shuffle=True, num_workers=1, pin_memory=is_cuda)
    if most:
        stop = Events.ITERATION_COMPLETED(at=most)
        engine.on(stop)(lambda state: state.interrupt("enough"))
    state = engine.run(loader, max_epochs=2)
    held = [each.state_dict() for each in engine.objects.values()]
    drawn = [torch.get_rng_state(), torch.rand(4, device=device)]
    leaves = torch.utils._pytree.tree_leaves([held, drawn])
    found = [each.tolist() if isinstance(each, torch.Tensor) else each for each in leaves]
    said = {
        "digest": sha256(repr(found).encode()).hexdigest(),
        "losses": [each.item() for each in losses],
        "iteration": state.iteration,
        "step": state.step,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    device, precision, directory, most, seed = sys.argv[1:]
    main(device, precision, Path(directory), int(most), int(seed))
