"""Hugging Face's collator in the place of `Padded`."""

import pytest
from torch.utils.data import DataLoader

from camshaft import LengthBatches

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")


def test_its_collator_pads_batches_of_like_length():
    words = {"[PAD]": 0, "[UNK]": 1, "a": 2}
    model = tokenizers.models.WordLevel(words, unk_token="[UNK]")
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]")
    texts = [tokenizer(" ".join("a" * (1 + number % 7))) for number in range(20)]
    lengths = [len(text["input_ids"]) for text in texts]
    collate = transformers.DataCollatorWithPadding(tokenizer)
    loader = DataLoader(texts, batch_sampler=LengthBatches(lengths, 4), collate_fn=collate)
    batches = list(loader)
    assert sum(int(batch["attention_mask"].sum()) for batch in batches) == sum(lengths)
    assert all(batch["input_ids"].shape == batch["attention_mask"].shape for batch in batches)
