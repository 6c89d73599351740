"""The loss of a large vocabulary by linear_cross_entropy, as the page of models shows it."""

import re
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from camshaft import count_next_tokens, supervised

PAGE = Path(__file__).parents[3] / "docs/guides/models.md"
pytestmark = [
    pytest.mark.skipif(not hasattr(nn, "LinearCrossEntropyOptions"), reason="needs torch 2.13"),
    pytest.mark.skipif(not PAGE.is_file(), reason="needs a checkout"),
]


@pytest.fixture(scope="module")
def language_model():
    """The class that the page shows."""
    (block,) = (
        each
        for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "class LanguageModel" in each
    )
    names = {"nn": nn, "torch": torch}
    exec(block, names)
    return names["LanguageModel"]


class Body(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.block = nn.TransformerEncoderLayer(width, 2, width, dropout=0.0, batch_first=True)

    def forward(self, input_ids):
        return type("Output", (), {"last_hidden_state": self.block(self.words(input_ids))})


class Causal(nn.Module):
    """A small GPT in the form of transformers: its head has the weights of its embedding."""

    def __init__(self, words=50_000, width=16):
        super().__init__()
        torch.manual_seed(0)
        self.base_model = Body(words, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.base_model.words.weight
        nn.init.normal_(self.head.weight, std=0.02)

    def get_output_embeddings(self):
        return self.head

    def forward(self, input_ids, labels):
        logits = self.head(self.base_model(input_ids).last_hidden_state[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss}


class Memory(TorchDispatchMode):
    """Counts the bytes of what operations make, and what of it is alive at once."""

    def __init__(self):
        super().__init__()
        self.alive, self.now, self.peak = set(), 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for each in tree_iter(made):
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                if storage._cdata not in self.alive:
                    self.alive.add(storage._cdata)
                    self.now += storage.nbytes()
                    self.peak = max(self.peak, self.now)
                    weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        return made

    def _free(self, storage, size):
        self.alive.remove(storage)
        self.now -= size


def batches(rows, tokens, words=50_000):
    ids = torch.randint(words, (2, rows, tokens), generator=torch.Generator().manual_seed(1))
    return [
        {"input_ids": each, "labels": each.masked_fill(each < words // 10, -100)} for each in ids
    ]


def trained(model, data):
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    engine = supervised(model, optimizer, weight=count_next_tokens)
    state = engine.run(data, max_epochs=1)
    return float(state.metrics["loss"]), float(engine.evaluate(data).metrics["loss"])


def test_a_step_takes_a_quarter_of_the_memory_and_has_the_same_loss(language_model):
    data, losses, peaks = batches(4, 128), [], []
    for wrap in (lambda model: model, language_model):
        with Memory() as memory:
            losses.append(trained(wrap(Causal()), data))
        peaks.append(memory.peak)
    assert peaks[1] <= 0.25 * peaks[0]
    for plain, ours in zip(*losses, strict=True):
        assert abs(plain - ours) <= 1e-6 * plain


@pytest.mark.slow
def test_a_model_of_transformers_trains_as_with_its_own_loss(language_model):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 100, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2, tie_word_embeddings=True)
    losses = []
    for wrap in (lambda model: model, language_model):
        torch.manual_seed(0)
        losses.append(trained(wrap(transformers.LlamaForCausalLM(config)), batches(4, 12, 100)))
    for plain, ours in zip(*losses, strict=True):
        assert abs(plain - ours) <= 1e-6 * plain
