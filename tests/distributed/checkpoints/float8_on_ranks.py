"""Run on one or two ranks: linear layers in torchao's float8, and optimizers that keep few bits."""

import hashlib
import json
import os
import sys
import warnings

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss

from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint

warnings.filterwarnings("ignore", "OptimState8bit does not implement _stable_hash_for_caching")

from torchao.float8 import Float8LinearConfig, convert_to_float8_training  # noqa: E402
from torchao.optim import AdamW8bit  # noqa: E402


def run(optimizer, directory, stop_at):
    """Train three epochs, or leave at an iteration; the run's iteration and a digest of weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    convert_to_float8_training(model, config=Float8LinearConfig(emulate=True))
    if ranks.world_size() > 1:
        for layer in (model[0], model[2], model):
            fully_shard(layer)
    engine = supervised(model, optimizer(model.parameters(), lr=1e-2), mse_loss)
    engine.add(Checkpoint(directory, resume=os.path.exists(directory)))
    if stop_at:
        engine.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("test"))
    numbers = torch.Generator().manual_seed(1)
    batches = [tuple(torch.randn(2, 8, 64, generator=numbers)) for _ in range(8)]
    state = engine.run(batches, max_epochs=3)
    weights = [
        getattr(each, "full_tensor", lambda each=each: each)() for each in model.parameters()
    ]
    content = b"".join(each.detach().contiguous().numpy().tobytes() for each in weights)
    return state.iteration, hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    directory = sys.argv[1]
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo")
    told = {
        "whole": run(torch.optim.AdamW, f"{directory}/whole", None),
        "left": run(torch.optim.AdamW, f"{directory}/left", 13),
        "resumed": run(torch.optim.AdamW, f"{directory}/left", None),
    }
    if ranks.world_size() > 1:
        with torch.compiler.set_stance("force_eager"):
            try:
                run(AdamW8bit, f"{directory}/few_bits", None)
            except TypeError as error:
                told["error"] = str(error)
    print(json.dumps(told))
    if ranks.world_size() > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
