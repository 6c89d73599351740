"""What the GPU benchmark trains, and the sizes of it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    steps: int = 300
    """Of a turn of the small step; of a larger model there are as many as take about as long."""
    turns: int = 11
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50304
    length: int = 1024
    texts: int = 16
    """Of a batch."""
    gpt_steps: int = 10
    images: int = 256
    pixels: int = 224
    image_steps: int = 20
    square: int = 2048
    """The width of the layers that are saved."""
    squares: int = 80
    saves: int = 4


TINY = Sizes(
    **{"steps": 4, "turns": 3, "layers": 1, "width": 16, "heads": 2, "vocabulary": 32},
    **{"length": 8, "texts": 2, "gpt_steps": 2, "images": 2, "pixels": 16, "image_steps": 2},
    **{"square": 8, "squares": 2, "saves": 2},
)
"""For a machine without a GPU, to see that everything runs."""


def mlp() -> nn.Module:
    """So small that a step is bound by its launches: the device waits for the host."""
    return nn.Sequential(
        *(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    )


class Block(nn.Module):
    """Attention to what came before, and two layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        split = self.attend(self.first(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        return x + self.layers(self.second(x))


class GPT(nn.Module):
    """124 million parameters by default, as GPT-2 has."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.token = nn.Embedding(sizes.vocabulary, sizes.width)
        self.position = nn.Embedding(sizes.length, sizes.width)
        self.blocks = nn.Sequential(*(Block(sizes.width, sizes.heads) for _ in range(sizes.layers)))
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, text: Tensor) -> Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        x = self.blocks(self.token(text) + self.position(places))
        logits: Tensor = self.head(self.norm(x))
        return logits


def next_tokens(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss of a GPT."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def convolutions() -> nn.Module:
    """Takes large batches, and computes about as long as they take to come."""
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 7, stride=4, padding=3), nn.ReLU()),
        *(nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(128, 256, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)),
    )
