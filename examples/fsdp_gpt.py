"""Train a GPT on Python's own library, with its weights sharded over ranks by FSDP2.

    python examples/fsdp_gpt.py                                        # one process
    torchrun --nproc-per-node=4 examples/fsdp_gpt.py                   # four GPUs, or CPU ranks
    torchrun --nproc-per-node=8 examples/fsdp_gpt.py --replicas 2      # two replicas of four shards

Stop it or kill it, run it again, also on another number of ranks, and it carries on.
"""

import argparse
import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.data import Dataset

from camshaft import Events, Output, State, checkpoint_activations, loader, ranks, supervised
from camshaft.handlers import (
    EMA,
    Checkpoint,
    ClipGradNorm,
    Export,
    JSONLines,
    LRSchedule,
    ProgressBar,
    StopOnSignal,
    Throughput,
    Validate,
)
from camshaft.handlers.schedules import warmup


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Pieces of a text as bytes, each with the same piece one byte further on."""

    def __init__(self, text: bytes, length: int) -> None:
        whole = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.pieces = whole.unfold(0, length + 1, length)

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        piece = self.pieces[number].long()
        return piece[:-1], piece[1:]


class Block(nn.Module):
    """Causal self-attention with heads of 32 numbers, and a feed-forward layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width, bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, time, width) to the same."""
        split = self.attention(self.norm_1(x)).unflatten(-1, (3, -1, 32))
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).flatten(2))
        y: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))
        return y


class GPT(nn.Module):
    """A small decoder, as in Radford et al., 2019."""

    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        self.head.weight = self.token.weight  # tied
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """The logits of what follows each byte: (batch, time) to (batch, time, 256)."""
        places = torch.arange(text.shape[1], device=text.device)
        logits: Tensor = self.head(self.norm(self.blocks(self.token(text) + self.position(places))))
        return logits


def sharding(replicas: int) -> dict[str, Any]:
    """How the blocks are sharded: in bf16 on GPUs, and in several replicas on a mesh of them."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found: dict[str, Any] = {"shard": "blocks.*"}
    if device == "cuda":
        found["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
    if replicas > 1:
        shape = (replicas, ranks.world_size() // replicas)
        found["mesh"] = init_device_mesh(device, shape, mesh_dim_names=("replicas", "shards"))
    return found


def loss_fn(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over bytes."""
    return cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def main() -> State[Any, Output]:
    """Train, or carry on."""
    parser = argparse.ArgumentParser(description="A GPT whose weights are sharded over ranks.")
    parser.add_argument("--directory", type=Path, default=Path("runs/fsdp_gpt"))
    parser.add_argument("--replicas", type=int, default=1, help="of the model; more than 1 is HSDP")
    parser.add_argument("--max-steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=200, help="steps between two saves")
    parser.add_argument("--batch-size", type=int, default=32, help="over all ranks")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--length", type=int, default=128, help="bytes of a sample")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--modules", default="*.py", help="of the standard library")
    options = parser.parse_args()

    torch.manual_seed(0)
    files = sorted(Path(os.__file__).parent.glob(options.modules))
    text = b"".join(each.read_bytes() for each in files)
    cut = len(text) * 9 // 10
    train_loader = loader(Windows(text[:cut], options.length), options.batch_size, training=True)
    val_loader = loader(Windows(text[cut:], options.length), options.batch_size, training=False)

    gpt = GPT(options.width, options.layers, options.length)
    checkpoint_activations(gpt, "blocks.*")
    model = ranks.prepare(gpt, **sharding(options.replicas))  # in one process it is not sharded
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))

    engine = supervised(model, optimizer, loss_fn, accumulate=options.accumulate)
    often = Events.STEP_COMPLETED(every=options.every, last=True)
    engine.add(
        ClipGradNorm(1.0),
        LRSchedule(warmup(50)),
        EMA(0.99),  # each rank averages its own shards
        Validate(val_loader, weights="ema", when=often),
        Checkpoint(options.directory, when=often, resume=True),  # on any number of ranks
        StopOnSignal(),  # on one rank: all stop at one step, which is saved
        Export(options.directory / "export", object="ema"),  # one file, for one process
        Throughput(tokens=lambda batch: batch[0].numel()),
        JSONLines(options.directory / "rows.jsonl"),
        ProgressBar("loss", "val/loss", "tokens_per_second"),
    )
    state = engine.run(train_loader, max_steps=options.max_steps)
    if ranks.rank() == 0:
        bits = float(state.metrics["val/loss"]) / math.log(2)
        print(f"{state.step} steps on {ranks.world_size()} ranks: {bits:.4f} bits a byte")
    return state


if __name__ == "__main__":
    with ranks.process_group():  # of torchrun, Slurm or MPI; alone, nothing happens
        main()
