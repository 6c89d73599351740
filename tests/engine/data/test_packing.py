"""Token sequences put together into rows: which ones, and that a model learns the same of them."""

import math
from itertools import chain, pairwise

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from camshaft import (
    Engine,
    Events,
    Packed,
    SeededSamples,
    State,
    count_next_tokens,
    loader,
    supervised,
)


def texts_of(count, most=9):
    """Texts of unlike length, no two alike."""
    return [[number, *range(1, 1 + number % most)] for number in range(count)]


def documents_in(row):
    """The parts of a row: tokens, positions and labels of each document."""
    for number in range(int(row["document_ids"].max()) + 1):
        own = row["document_ids"] == number
        yield tuple(row[name][own].tolist() for name in ("input_ids", "position_ids", "labels"))


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=120),
    st.integers(30, 90),
    st.integers(1, 50),
)
def test_every_text_is_whole_in_one_row_and_no_label_is_of_another_text(lengths, most, window):
    texts = [[100 + number] * length for number, length in enumerate(lengths)]
    rows = Packed(texts, max_tokens=most, window=window, fill=7)
    found = []
    for number, row in enumerate(rows[each] for each in range(len(rows))):
        assert {each.shape for each in row.values()} == {(most,)}
        assert {each.dtype for each in row.values()} == {torch.int64}
        parts = [*documents_in(row)]
        for tokens, positions, labels in parts:
            found.append(tokens)
            assert positions == [*range(len(tokens))]
            assert labels == [-100, *tokens[1:]]
        rest = row["document_ids"] == -1
        assert row["input_ids"][rest].tolist() == [7] * int(rest.sum())
        assert row["labels"][rest].tolist() == [-100] * int(rest.sum())
        assert row["position_ids"][rest].tolist() == [*range(int(rest.sum()))]
        assert [texts[each] for each in rows.samples(number)] == [tokens for tokens, *_ in parts]
    assert sorted(found) == sorted(texts)
    if window >= len(lengths):  # no two rows of a window would fit into one
        filled = [sum(lengths[each] for each in rows.samples(n)) for n in range(len(rows))]
        assert all(a + b > most for a, b in pairwise(sorted(filled)))


def test_the_longest_come_first_each_into_the_fullest_row_that_has_room():
    rows = Packed([[0] * length for length in (4, 7, 2, 3, 6, 8)], max_tokens=10)
    # 8 | 7 | 6, then 4 to 6, 3 to 7, 2 to 8.
    assert [rows.samples(each) for each in range(len(rows))] == [[2, 5], [1, 3], [0, 4]]
    rows = Packed([[0] * length for length in (4, 7, 2, 3, 6, 8)], max_tokens=10, window=3)
    assert [rows.samples(each) for each in range(len(rows))] == [[1, 2], [0], [5], [3, 4]]
    assert rows.samples(-1) == [3, 4]
    assert rows[-1]["input_ids"].shape == (10,)
    with pytest.raises(IndexError):
        rows[4]


def test_rows_of_texts_of_all_lengths_are_full():
    lengths = torch.randint(1, 500, (5000,), generator=torch.Generator().manual_seed(0)).tolist()
    rows = Packed([None] * 5000, max_tokens=1024, lengths=lengths)
    assert sum(lengths) / (len(rows) * 1024) > 0.99


@pytest.mark.parametrize(
    "make", [list, tuple, torch.tensor, numpy.array, lambda ids: torch.tensor(ids).short()]
)
def test_samples_are_sequences_of_whole_numbers_of_any_kind(make):
    rows, same = (
        Packed([make([1, 2, 3]), make([4])], max_tokens=5),
        Packed([[1, 2, 3], [4]], max_tokens=5),
    )
    assert {name: each.tolist() for name, each in rows[0].items()} == {
        name: each.tolist() for name, each in same[0].items()
    }


def test_labels_of_the_samples_are_kept_but_for_the_first_of_each():
    prompts = [
        {"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4], "attention_mask": [1] * 4},
        {"input_ids": [5, 6], "labels": [5, 6], "attention_mask": [1, 1]},
    ]
    assert Packed(prompts, max_tokens=7)[0]["labels"].tolist() == [-100, -100, 3, 4, -100, 6, -100]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([[1, 2]])


@pytest.mark.parametrize(
    ("samples", "options", "error", "says"),
    [
        ([[1], [1] * 9], {}, ValueError, r"Packed\(max_tokens=8\): sample 1 has 9 tokens; cut it"),
        ([[1], []], {}, ValueError, "sample 1 has 0 tokens; leave empty samples out"),
        ([], {}, ValueError, "got no samples"),
        ([[1]], {"max_tokens": 0}, ValueError, "needs a whole number of tokens, from 1"),
        ([[1]], {"lengths": [1.0]}, TypeError, "got 1.0 as the length of sample 0"),
        ([[1]], {"lengths": [1, 2]}, ValueError, "got 2 lengths for 1 samples: give one for each"),
        ([[1]], {"window": 0}, ValueError, r"window=0\): needs a number of samples, from 1"),
        ([[1]], {"fill": None}, TypeError, r"fill=None\): needs the id of a token"),
        ([[1.5]], {}, TypeError, r"got a torch.float32\[1\] as sample 0: it needs a sequence"),
        ([[True]], {}, TypeError, r"got a torch.bool\[1\] as sample 0"),
        ([[[1, 2]]], {}, TypeError, r"got a torch.int64\[1, 2\] as sample 0"),
        (["text"], {}, TypeError, "got a str as sample 0"),
        ([3], {}, TypeError, "got a int as sample 0"),
        (TensorDataset(torch.ones(2, 1).long()), {}, TypeError, "got a tuple as sample 0"),
        (Stream(), {}, TypeError, "a Stream has no indices or no length"),
        ([{"ids": [1]}], {}, TypeError, r"a sample without 'input_ids' \(sample 0\)"),
        ([{"input_ids": [1], "text": "a"}], {}, TypeError, "a sample with 'text'"),
        ([{"input_ids": [1, 0], "attention_mask": [1, 0]}], {}, ValueError, "sample 0 is padded"),
        ([{"input_ids": [1, 2], "labels": [2]}], {}, ValueError, "2 input_ids and 1 labels: give"),
    ],
)
def test_what_cannot_be_packed_is_refused_when_it_is_given(samples, options, error, says):
    with pytest.raises(error, match=says):
        Packed(samples, **{"max_tokens": 8, **options})


def test_samples_that_have_other_lengths_than_was_said_are_refused():
    rows = Packed([[1, 2], [3]], max_tokens=8, lengths=[2, 2])
    with pytest.raises(ValueError, match="sample 1 has 1 tokens, and had 2 when"):
        rows[0]


def part(rows, count, rank, saved=None, stop_at=None, size=4, epochs=2, workers=0):
    """What a rank of so many is handed, up to an iteration; and what a checkpoint would hold."""
    seen, state = [], State()
    engine = Engine(
        lambda state, batch: seen.append(batch["input_ids"].tolist() if state.share else [])
    )
    if saved is not None:
        state.load_state_dict(saved)
    if stop_at is not None:
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.stop("enough", resumable=True))
    sampler = DistributedSampler(rows, count, rank)
    data = DataLoader(rows, size // count, sampler=sampler, num_workers=workers)
    engine.run(data, max_epochs=epochs, state=state)
    return seen, state.state_dict()


def on_ranks(rows, stages):
    """The rows of each step, over all ranks, in stages of (ranks, stop)."""
    steps, saved = [], None
    for count, stop_at in stages:
        parts = [part(rows, count, rank, saved, stop_at) for rank in range(count)]
        saved = parts[0][1]
        steps += [sorted(chain(*step)) for step in zip(*(s for s, _ in parts), strict=True)]
    return steps


def test_on_four_ranks_and_then_on_two_each_step_has_the_rows_of_one_process():
    rows = Packed(texts_of(90), max_tokens=16, window=20)
    assert len(rows) % 4  # so that the last batch is short
    whole = on_ranks(rows, [(1, None)])
    assert on_ranks(rows, [(4, 3), (2, 9), (1, None)]) == whole
    assert on_ranks(rows, [(2, 8), (4, None)]) == whole


@pytest.mark.parametrize("change", [{"max_tokens": 17}, {"window": 21}])
def test_other_rows_are_refused_in_mid_epoch_and_taken_between_two(change):
    def rows(**options):
        return Packed(texts_of(90), **{"max_tokens": 16, "window": 20, **options})

    _, saved = part(rows(), 1, 0, stop_at=3)
    for wrap in (lambda data: data, SeededSamples):
        with pytest.raises(ValueError, match=r"drawn by .* of Packed\(max_tokens=16, window=20\)"):
            part(wrap(rows(**change)), 2, 0, saved)
    _, saved = part(rows(), 1, 0, epochs=1)
    part(rows(**change), 1, 0, saved)


class Bigrams(torch.nn.Module):
    """A model of one token, so that a text gives the same in any row, to the last bit."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(100, 100, dtype=torch.float64)

    def forward(self, input_ids, position_ids, document_ids):
        return self.table(input_ids)


class Attention(Bigrams):
    """Each token attends to those before it in its own document."""

    def __init__(self):
        super().__init__()
        self.place = torch.nn.Embedding(20, 100, dtype=torch.float64)

    def forward(self, input_ids, position_ids, document_ids):
        x = self.table(input_ids) + self.place(position_ids)
        same = document_ids[:, :, None] == document_ids[:, None, :]
        return scaled_dot_product_attention(x, x, x, same.tril())


def losses_of(made, labels):
    """The loss of each token that has a label behind it."""
    losses = cross_entropy(made[:, :-1].transpose(1, 2), labels[:, 1:], reduction="none")
    return losses[labels[:, 1:] != -100]


def alone(model, text):
    ids = torch.tensor([text])
    place = torch.arange(len(text))[None]
    return losses_of(model(ids, place, torch.zeros_like(ids)), ids)


@pytest.mark.parametrize("kind", [Bigrams, Attention])
def test_the_loss_of_each_token_is_that_of_its_text_alone(kind):
    texts, model = texts_of(60), kind()
    found = []
    for batch in loader(Packed(texts, max_tokens=20), 3, training=True):
        labels = batch.pop("labels")
        found.append(losses_of(model(**batch), labels))
    found = torch.cat(found).sort().values
    expected = torch.cat([alone(model, text) for text in texts]).sort().values
    if kind is Bigrams:
        assert torch.equal(found, expected)
        assert math.fsum(found.tolist()) == math.fsum(expected.tolist())
    else:
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [Bigrams, Attention])
def test_a_step_over_rows_is_the_step_of_the_mean_over_the_tokens_of_its_texts(kind):
    texts, lr = texts_of(60), 0.5
    rows = Packed(texts, max_tokens=20)
    model, twin, seen = kind(), kind(), []

    def loss_fn(made, labels):
        return losses_of(made, labels).mean()

    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    engine = supervised(model, optimizer, loss_fn, weight=count_next_tokens, accumulate=2)
    by_first = {tuple(text): text for text in texts}

    @engine.on(Events.ITERATION_COMPLETED)
    def note(state):
        ids, documents = state.batch["input_ids"], state.batch["document_ids"]
        for row, document in zip(ids, documents, strict=True):
            own = [row[document == n].tolist() for n in range(int(document.max()) + 1)]
            seen.append([by_first[tuple(text)] for text in own])

    engine.run(loader(rows, 3, training=True, num_workers=0), max_epochs=1)
    for begin in range(0, 15, 6):  # two batches of three rows are a step, and the last one alone
        step = [text for row in seen[begin : begin + 6] for text in row]
        loss = torch.cat([alone(twin, text) for text in step]).mean()
        grads = torch.autograd.grad(loss, [*twin.parameters()], allow_unused=True)
        with torch.no_grad():
            for each, grad in zip(twin.parameters(), grads, strict=True):
                each.sub_(lr * grad)
    assert len(seen) == len(rows) == 15
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(mine, other, rtol=0, atol=1e-12)


def llama(**options):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(vocab_size=100, **sizes, **heads, **options)
    return transformers.LlamaForCausalLM(config).double()


def test_models_of_hugging_face_keep_texts_apart_without_a_cache():
    model, texts = llama(use_cache=False), texts_of(20)[1:]
    rows = loader(Packed(texts, max_tokens=20), 3, training=True)
    found = torch.cat([losses_of(model(**batch).logits, batch["labels"]) for batch in rows])
    ids = [torch.tensor([text]) for text in texts]
    expected = torch.cat([losses_of(model(each).logits, each) for each in ids])
    assert torch.allclose(found.sort().values, expected.sort().values, rtol=0, atol=1e-12)


def test_a_model_with_a_cache_which_would_mix_the_texts_of_a_row_is_refused():
    model = llama()  # use_cache=True is the default of transformers
    engine = supervised(model, torch.optim.SGD(model.parameters()), weight=count_next_tokens)
    rows = loader(Packed(texts_of(20), max_tokens=20), 3, training=True)
    for read in (engine.evaluate, lambda rows: engine.run(rows, max_epochs=1)):
        with pytest.raises(ValueError, match="apart only without a cache: model"):
            read(rows)
    engine.run(
        [{"input_ids": torch.ones(2, 3).long(), "labels": torch.ones(2, 3).long()}], max_epochs=1
    )
    model.config.use_cache = False
    with pytest.raises(ValueError, match="take a row for one text: leave it out"):
        engine.run([{**row, "attention_mask": row["labels"] > -101} for row in rows], max_epochs=1)
    assert engine.run(rows, max_epochs=1).step == len(rows)
