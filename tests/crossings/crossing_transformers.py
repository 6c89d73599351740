"""transformers: how its collators make batches."""

import torch
from crossing import exact, trained_with
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
)


@exact("transformers", "Data", "DataLoader(texts, collate_fn=DataCollatorForLanguageModeling(...))")
def test_masks(folder):
    """DataCollatorForLanguageModeling, which masks tokens at random, in two workers."""
    words = [
        "[PAD]",
        "[UNK]",
        "[MASK]",
        "[CLS]",
        "[SEP]",
        "one",
        "run",
        "that",
        "resumes",
        "to",
        "the",
        "very",
        "last",
        "bit",
    ]
    plain = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]", "mask_token": "[MASK]", "unk_token": "[UNK]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, **special)
    texts = [tokenizer(" ".join(words[5 + i % 4 :])) for i in range(44)]
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3)
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(
        texts, 4, shuffle=True, num_workers=2, collate_fn=lambda rows: dict(collate(rows))
    )

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertForMaskedLM(BertConfig(vocab_size=len(words), intermediate_size=16, **sizes))
    keys = "input_ids", "attention_mask", "labels"
    return trained_with(
        model, lambda batch: model(**{key: batch[key] for key in keys}).loss, loader
    )
