"""transformers: models that compute their own loss."""

import torch
from crossing import Trial, adam, exact

from camshaft import supervised
from camshaft.handlers import EMA, ClipGradNorm, LRSchedule, Validate


def texts():
    generator = torch.Generator().manual_seed(5)
    rows = torch.randint(0, 50, (44, 12), generator=generator)
    data = [{"input_ids": row, "labels": row} for row in rows]
    return torch.utils.data.DataLoader(data, 4, shuffle=True)


@exact("transformers", "Models", "supervised(LlamaForCausalLM(config), optimizer)")
def test_tied_llama(folder):
    """A Llama with tied embeddings, an EMA and a schedule of transformers."""
    from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, tie_word_embeddings=True, attention_dropout=0.1,
        )
    )  # fmt: skip
    optimizer = adam(model)
    schedule = get_cosine_schedule_with_warmup(optimizer, 3, 33)
    engine = supervised(model, optimizer)
    engine.add(LRSchedule(schedule), ClipGradNorm(1.0), EMA(0.9), Validate(texts(), weights="ema"))
    return Trial(engine, texts())


@exact("transformers", "Models", "supervised(BertForMaskedLM(config), optimizer, accumulate=2)")
def test_masked_tokens(folder):
    """A Bert whose collator masks tokens at random, with accumulation."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, num_labels=4,
        )
    )  # fmt: skip

    def masked(rows):
        ids = torch.stack([row["input_ids"] for row in rows])
        labels = ids[:, 0] % 4
        ids = ids.masked_fill(torch.rand(ids.shape) < 0.15, 1)
        return {"input_ids": ids, "labels": labels}

    data = torch.utils.data.DataLoader(texts().dataset, 4, shuffle=True, collate_fn=masked)
    return Trial(supervised(model, adam(model), accumulate=2), data)
