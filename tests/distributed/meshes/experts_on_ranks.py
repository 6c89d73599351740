"""Run on ranks: the experts of the guide; each rank has its own samples, and sends tokens."""

import re
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

from camshaft import Events, loader, ranks, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, JSONLines, Validate

directory, spread = Path(sys.argv[1]), int(sys.argv[2])  # over how many ranks the experts are
stop_at = int(sys.argv[3]) if len(sys.argv) > 3 else None
WIDTH, EXPERTS, CLASSES, SAMPLES = 8, 4, 5, 52


guide = (Path(__file__).parents[3] / "docs/guides/meshes.md").read_text()
_, _, recipe = guide.partition("## Experts")
shown = {"torch": torch, "dist": dist, "ranks": ranks}
for code in re.findall(r"```python\n(.*?)```", recipe, re.DOTALL):
    exec(code, shown)


class Whole(shown["Experts"]):
    """All experts in one process, which sends nothing."""

    def forward(self, tokens, chosen):
        return self.compute(tokens, chosen, self.weight)


class Mixture(nn.Module):
    """A layer, experts that it chooses between, and scores."""

    def __init__(self):
        super().__init__()
        self.first, self.router = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, EXPERTS)
        kind = shown["Experts"] if ranks.world_size() > 1 else Whole
        self.experts, self.head = kind(EXPERTS, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs):
        tokens = self.first(inputs)
        share, chosen = self.router(tokens).softmax(-1).max(-1)
        return self.head(tokens + share[:, None] * self.experts(tokens, chosen))


def samples(count):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, WIDTH, generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] * 9).long().abs() % CLASSES)


with ranks.process_group("gloo"):
    torch.manual_seed(0)
    model = Mixture()
    if (count := ranks.world_size()) > 1:
        shown["shard"](model, spread, "cpu")
        model.experts.set_force_sum_reduction_for_comms(count > spread)  # for gloo
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    engine = supervised(model, optimizer, nn.functional.cross_entropy, accumulate=2)
    engine.add(
        ClipGradNorm(0.5),
        Validate(loader(samples(20), 4, training=False), when=Events.EPOCH_COMPLETED),
        Checkpoint(directory / "run", when=Events.ITERATION_COMPLETED(every=3), resume=True),
        JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED),
    )
    if stop_at is not None:
        engine.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: sys.exit(7))
    engine.run(loader(samples(SAMPLES), 8, training=True, seed=1), max_epochs=3)
    whole = {
        name: (each.full_tensor() if hasattr(each, "full_tensor") else each).tolist()
        for name, each in model.state_dict().items()
    }
    if ranks.rank() == 0:
        torch.save(whole, directory / "weights.pt")
