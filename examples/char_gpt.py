"""A character-level GPT that learns Python from Python's own standard library.

Each sample is one function, so batches differ in how many characters they hold. The loss is a sum
over characters, and `update(state, loss, weight=...)` is told how many: the gradient of a step is
then the mean over all of its characters. In two to three minutes on two cores the model comes to
2.4 bits a character.

With `--muon` two optimizers make each step: Muon for the matrices of the blocks, AdamW for the
embeddings, which are the head too, the norms and the biases. One schedule moves the rates of both.

    python examples/char_gpt.py
    python examples/char_gpt.py --muon --directory runs/char_gpt_muon
"""

import argparse
import ast
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from camshaft import Engine, Events, State, Update
from camshaft.handlers import (
    EMA,
    Average,
    Checkpoint,
    ClipGradNorm,
    JSONLines,
    LRSchedule,
    ProgressBar,
    StopOnSignal,
    Validate,
    best,
    latest,
)
from camshaft.handlers.schedules import cosine, warmup

CHARACTERS = 128  # ASCII; a function with any other is left out
END, PADDING = 0, 1  # control characters, which no source holds


class Losses(NamedTuple):
    """The loss of a batch, summed over its characters, and the number of these."""

    total: Tensor
    characters: Tensor


def functions(max_length: int) -> Iterator[Tensor]:
    """The functions of the standard library's modules as tensors of characters, cut and ended."""
    for module in sorted(Path(os.__file__).parent.glob("*.py")):
        text = module.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                if source.isascii():
                    yield torch.tensor([*source.encode()[:max_length], END], dtype=torch.uint8)


def pad(samples: Sequence[Tensor]) -> Tensor:
    """Samples of different lengths as one batch, filled up with PADDING."""
    return pad_sequence(list(samples), batch_first=True, padding_value=PADDING).long()


class Block(nn.Module):
    """Causal self-attention, and a feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width, bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, time, width) to the same."""
        batch, time, width = x.shape
        split = self.attention(self.norm_1(x)).view(batch, time, 3, self.heads, -1)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, time, width))
        y: Tensor = x + self.feed_forward(self.norm_2(x))
        return y


class GPT(nn.Module):
    """A small decoder, as in Radford et al., 2019."""

    def __init__(self, width: int = 128, heads: int = 4, layers: int = 2, max_length: int = 256):
        super().__init__()
        self.token = nn.Embedding(CHARACTERS, width)
        self.position = nn.Embedding(max_length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for embedding in (self.token, self.position):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, characters: Tensor) -> Tensor:
        """The logits of what follows each character: (batch, time) to (batch, time, 128)."""
        positions = self.position.weight[: characters.shape[1]]
        x = self.norm(self.blocks(self.token(characters) + positions))
        logits: Tensor = x @ self.token.weight.T
        return logits

    @torch.no_grad()
    def generate(self, prompt: str, length: int) -> str:
        """The prompt and what the model writes after it, at most `length` characters."""
        max_length, _ = self.position.weight.shape
        characters = torch.tensor([[*prompt.encode()]], device=self.position.weight.device)
        for _ in range(length):
            probabilities = self(characters[:, -max_length:])[0, -1].softmax(0)
            characters = torch.cat([characters, torch.multinomial(probabilities, 1)[None]], 1)
            if characters[0, -1] == END:
                break
        return bytes(characters[0].tolist()).decode().rstrip("\0")


def optimizers_of(model: GPT, muon: bool) -> dict[str, Optimizer]:
    """AdamW; with `muon`, Muon for the matrices of the blocks (Jordan et al., 2024)."""
    matrices = [each for each in model.blocks.parameters() if each.ndim == 2] if muon else []
    rest = [each for each in model.parameters() if all(each is not one for one in matrices)]
    made: dict[str, Optimizer] = {"adamw": torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.95))}
    if muon:
        made["muon"] = torch.optim.Muon(matrices, lr=0.02)  # needs torch 2.9
    return made


def build(
    model: GPT, accumulate: int, device: torch.device, muon: bool = False
) -> Engine[Tensor, Losses]:
    """The engine that trains and evaluates the model."""
    optimizers = optimizers_of(model, muon)
    update = Update(optimizers, accumulate=accumulate)
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported()

    def step(state: State, batch: Tensor) -> Losses:
        batch = batch.to(device, non_blocking=True)
        targets = batch[:, 1:]
        with torch.autocast(device.type, torch.bfloat16, enabled=has_bf16):
            logits = model(batch[:, :-1])
        total = cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), ignore_index=PADDING, reduction="sum"
        )
        count = (targets != PADDING).sum()
        if state.training:
            update(state, total, weight=count)
        state.metrics["bits"] = total.detach() / count / math.log(2)
        return Losses(total.detach(), count)

    engine = Engine(step, update, objects={"model": model, **optimizers})
    return engine.add(
        ClipGradNorm(1.0),
        LRSchedule(warmup(0.1).then(cosine(final=0.05))),  # of all optimizers
        EMA(0.98),
        Average("bits", over=50, weight=characters_of),  # of the last 50 batches
        Average("bits", weight=characters_of),  # of the epoch
    )


def characters_of(losses: Losses) -> Tensor:
    """The weight of a batch in a mean: its number of characters."""
    return losses.characters


def main(arguments: Sequence[str] | None = None) -> State[Tensor, Losses]:
    """Train, or carry on, and let the model write."""
    parser = argparse.ArgumentParser(description="A character-level GPT.")
    parser.add_argument("--directory", type=Path, default=Path("runs/char_gpt"))
    parser.add_argument("--max-steps", type=int, default=500)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--batch-size", type=int, default=16, help="functions of a micro-batch")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--max-length", type=int, default=192, help="characters of a sample")
    parser.add_argument("--muon", action="store_true", help="for the matrices of the blocks")
    parser.add_argument("--every", type=int, default=100, help="steps from one save to the next")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    samples = list(functions(options.max_length))
    train_set: Any = [sample for number, sample in enumerate(samples) if number % 20]
    val_set: Any = samples[::20]  # a DataLoader reads lists too, which its types do not say
    train_loader = DataLoader(train_set, options.batch_size, shuffle=True, collate_fn=pad)
    val_loader = DataLoader(val_set, 64, collate_fn=pad)

    model = GPT(max_length=options.max_length).to(device)
    engine = build(model, options.accumulate, device, options.muon)
    engine.add(
        Validate(val_loader, weights="ema"),
        Checkpoint(
            options.directory,
            when=Events.STEP_COMPLETED(every=options.every) | Events.EPOCH_COMPLETED(last=True),
            keep=latest(1) | best(1, "val/bits"),
            resume=True,
        ),
        JSONLines(options.directory / "rows.jsonl"),
        StopOnSignal(),
        ProgressBar("bits/mean", "val/bits"),
    )
    state = engine.run(train_loader, max_steps=options.max_steps, max_batches=options.max_batches)
    if state.is_interrupted:  # the script goes on when it is started again
        return state
    print(f"{state.step} steps: {float(state.metrics['val/bits']):.2f} bits a character")
    with engine.using("ema"):
        print(model.generate("    def ", 200))
    return state


if __name__ == "__main__":
    main()
