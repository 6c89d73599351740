"""Models of Hugging Face's as they are, with random weights: trained, measured, saved, resumed."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Events, count_next_tokens, supervised
from camshaft.handlers import Checkpoint, Collect, Metrics, Validate

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

SIZES = {"vocab_size": 32, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, n_positions=16, **SIZES)
    return transformers.GPT2LMHeadModel(config).double()


def llama():
    torch.manual_seed(0)
    wide = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**wide, num_attention_heads=2, **SIZES)
    return transformers.LlamaForCausalLM(config).double()


def classifier():
    torch.manual_seed(0)
    wide = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.BertConfig(**wide, num_attention_heads=2, num_labels=3, vocab_size=32)
    return transformers.BertForSequenceClassification(config).double()


def texts(*lengths, width=12):
    """Padded texts, as their collators make them: a mapping that is no dict, labels of -100."""
    generator = torch.Generator().manual_seed(5)
    for row in (lengths[at : at + 2] for at in range(0, len(lengths), 2)):
        ids = torch.randint(2, 32, (len(row), width), generator=generator)
        mask = torch.arange(width) < torch.tensor(row)[:, None]
        labels = torch.where(mask, ids, -100)
        yield transformers.BatchEncoding(
            {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}
        )


def train(model, **arguments):
    """Train without dropout, so that a batch has the same gradient in whatever parts."""
    for each in model.modules():
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return supervised(model, optimizer, **arguments)


def by_hand(model, batches):
    """The gradient of all tokens as in their Trainer: sums over num_items_in_batch."""
    tokens = sum((each["labels"][:, 1:] != -100).sum() for each in batches)
    for each in batches:
        model(**each, num_items_in_batch=tokens).loss.backward()
    return [each.grad for each in model.parameters()]


@pytest.mark.quick(make=2)
@pytest.mark.parametrize(("make", "split"), [(gpt2, None), (llama, 1), (gpt2, 1)])
def test_a_step_and_a_validation_of_a_language_model_are_means_over_its_tokens(make, split):
    batches = list(texts(12, 3, 2, 9, 5, 5))
    engine = train(make(), weight=count_next_tokens, accumulate=3, split=split)
    engine.add(Validate(batches, when=Events.STARTED))
    gradients = []

    @engine.on(Events.GRADIENTS_READY)
    def keep(state):
        gradients.extend(each.grad for each in engine.objects["model"].parameters())

    state = engine.run(batches, max_epochs=1)
    other = train(make()).objects["model"]
    for ours, theirs in zip(gradients, by_hand(other, batches), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-6)  # they compute losses in float32
    counts = [(each["labels"][:, 1:] != -100).sum() for each in batches]
    losses = [
        make().eval()(**each).loss * count for each, count in zip(batches, counts, strict=True)
    ]
    assert state.metrics["val/loss"].item() == pytest.approx((sum(losses) / sum(counts)).item())
    assert state.output.prediction.shape == (2, 12, 32)
    assert state.step == 1


def test_a_classifier_is_trained_measured_resumed_and_asked_without_labels(tmp_path):
    def run(directory, epochs):
        engine = train(classifier())
        accuracy = MulticlassAccuracy(3, average="micro")
        engine.add(Metrics({"accuracy": accuracy}), Collect(), Checkpoint(directory, resume=True))
        return engine, engine.run(batches, max_epochs=epochs)

    batches = [dict(each) | {"labels": torch.tensor([0, 2])} for each in texts(12, 3, 2, 9)]
    whole, state = run(tmp_path / "whole", 3)
    run(tmp_path / "parts", 1)
    parts, _ = run(tmp_path / "parts", 3)
    for ours, theirs in zip(
        *(each.objects["model"].parameters() for each in (parts, whole)), strict=True
    ):
        assert torch.equal(ours, theirs)
    assert state.metrics.keys() == {"loss", "accuracy"}
    unlabelled = [{k: v for k, v in each.items() if k != "labels"} for each in batches]
    found = whole.evaluate(unlabelled)
    assert found.collected["outputs"]["prediction"].shape == (4, 3)
    assert found.metrics == {}
    assert whole.evaluate(batches).metrics.keys() == {"loss", "accuracy"}


def test_their_classifier_can_have_another_loss():
    batches = [dict(each) | {"labels": torch.tensor([0, 2])} for each in texts(12, 3)]
    weighted = torch.nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0]).double())
    engine = train(classifier(), loss_fn=lambda output, labels: weighted(output.logits, labels))
    expected = weighted(classifier().eval()(**batches[0]).logits, batches[0]["labels"])
    assert engine.run(batches, max_epochs=1).metrics["loss"].item() == pytest.approx(
        expected.item()
    )


@pytest.mark.parametrize("split", [None, 1])
def test_all_that_their_model_returned_is_in_the_output_but_its_cache(split):
    (batch,) = texts(12, 3)
    model = llama()
    model.config.use_cache = model.config.output_hidden_states = True
    state = train(model, weight=count_next_tokens, split=split).run([batch], max_epochs=1)
    made = state.output.model_output
    assert type(made).__name__ == "CausalLMOutputWithPast"
    assert made.logits is state.output.prediction
    assert torch.allclose(made.loss, state.output.loss.float())
    assert [each.shape for each in made.hidden_states] == [(2, 12, 8)] * 2
    assert made.past_key_values is None
    assert not any(each.requires_grad for each in (made.loss, *made.hidden_states))
