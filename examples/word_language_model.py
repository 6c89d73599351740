"""A recurrent language model: its hidden state goes from batch to batch, and into checkpoints.

An LSTM reads Python's own standard library as several long columns of words, a window at a time.
Where one window ends the next one begins, so the hidden state is carried over, without its graph:
truncated backpropagation through time. It is the memory of the process function,
`state.recall(step, Memory)`: saved with the run, and new in each evaluation.

    python examples/word_language_model.py
"""

import argparse
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from camshaft import Engine, State, Update
from camshaft.handlers import (
    Average,
    Checkpoint,
    ClipGradNorm,
    LRSchedule,
    ProgressBar,
    StopOnSignal,
    Validate,
    best,
    latest,
)
from camshaft.handlers.schedules import cosine, warmup

Hidden = tuple[Tensor, Tensor]  # what an LSTM hands from step to step
Window = tuple[Tensor, Tensor]  # words, and the word that follows each of them: (time, column)
UNKNOWN = "<unknown>"


@dataclass
class Memory:
    """What the model has read so far; nothing at the beginning of the text."""

    hidden: Hidden | None = None


def words() -> Iterator[str]:
    """The words and signs of the standard library's modules."""
    for module in sorted(Path(os.__file__).parent.glob("*.py")):
        yield from re.findall(r"\w+|[^\w\s]|\n", module.read_text("utf-8", "replace"))


class Windows(Dataset[Window]):
    """A text of word numbers, cut into columns, and these into windows that follow each other."""

    def __init__(self, text: Tensor, columns: int, length: int) -> None:
        rows = len(text) // columns
        self.text = text[: rows * columns].view(columns, rows).T.contiguous()
        self.length = length

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.length

    def __getitem__(self, number: int) -> Window:
        start = number * self.length
        end = start + self.length
        return self.text[start:end], self.text[start + 1 : end + 1]


class Model(nn.Module):
    """An LSTM between an embedding and its transpose."""

    def __init__(self, vocabulary: int, width: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.recurrent = nn.LSTM(width, width, layers)
        self.dropout = nn.Dropout(0.2)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, words: Tensor, hidden: Hidden | None) -> tuple[Tensor, Hidden]:
        """The logits of what follows each word, and the hidden state after the last one."""
        x, after = self.recurrent(self.dropout(self.embedding(words)), hidden)
        return self.dropout(x) @ self.embedding.weight.T, after


def build(model: Model, device: torch.device) -> Engine[Window, Tensor]:
    """The engine that trains and evaluates the model."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    update = Update(optimizer)

    def step(state: State[Window, Tensor], window: Window) -> Tensor:
        words, following = (each.to(device) for each in window)
        memory = state.recall(step, Memory)
        if state.iteration_in_epoch == 1:  # the text begins again
            memory.hidden = None
        logits, (hidden, cell) = model(words, memory.hidden)
        memory.hidden = hidden.detach(), cell.detach()
        loss = cross_entropy(logits.flatten(0, 1), following.flatten())
        if state.training:
            update(state, loss)
        state.metrics["loss"] = loss.detach()
        return loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": optimizer})
    return engine.add(
        ClipGradNorm(0.25), LRSchedule(warmup(0.05).then(cosine(0.1))), Average("loss", weight=1)
    )


@torch.no_grad()
def write(model: Model, vocabulary: Sequence[str], length: int) -> str:
    """So many words that the model makes up; each of them is its next input."""
    model.eval()
    hidden: Hidden | None = None
    word = torch.tensor([[vocabulary.index("\n")]], device=model.embedding.weight.device)
    found: list[str] = []
    for _ in range(length):
        logits, hidden = model(word, hidden)
        logits[..., vocabulary.index(UNKNOWN)] = -math.inf
        word = torch.multinomial(logits.flatten().softmax(0), 1)[None]
        found.append(vocabulary[int(word)])
    return " ".join(found)


def main(arguments: Sequence[str] | None = None) -> State[Window, Tensor]:
    """Train, or carry on, and let the model write."""
    parser = argparse.ArgumentParser(description="A recurrent language model.")
    parser.add_argument("--directory", type=Path, default=Path("runs/word_language_model"))
    parser.add_argument("--max-epochs", type=int, default=4)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--words", type=int, default=100_000, help="of the text to read")
    parser.add_argument("--vocabulary", type=int, default=2000, help="the most common words")
    parser.add_argument("--columns", type=int, default=20, help="read side by side")
    parser.add_argument("--length", type=int, default=35, help="words of a column in a window")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    text = list(islice(words(), options.words))
    vocabulary = [UNKNOWN, *(word for word, _ in Counter(text).most_common(options.vocabulary))]
    numbers = {word: number for number, word in enumerate(vocabulary)}
    encoded = torch.tensor([numbers.get(word, 0) for word in text])
    train, val = encoded[: -len(encoded) // 10], encoded[-len(encoded) // 10 :]
    windows = [Windows(each, options.columns, options.length) for each in (train, val)]
    train_loader, val_loader = (DataLoader(each, batch_size=None) for each in windows)

    model = Model(len(vocabulary)).to(device)
    engine = build(model, device).add(
        Validate(val_loader),
        Checkpoint(options.directory, keep=latest(1) | best(1, "val/loss"), resume=True),
        StopOnSignal(),
        ProgressBar("loss", "loss/epoch", "val/loss"),
    )
    limits = {"max_epochs": options.max_epochs, "max_batches": options.max_batches}
    state = engine.run(train_loader, **limits)
    perplexity = math.exp(state.metrics["val/loss"])
    print(f"{state.epoch} epochs: perplexity {perplexity:.1f} of {len(vocabulary)} words")
    print(write(model, vocabulary, 60))
    return state


if __name__ == "__main__":
    main()
