"""The example of supervised fine-tuning: what its loss is over, and that it resumes."""

import re
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.nn.functional import log_softmax
from torch.nn.utils import clip_grad_norm_

from camshaft import Events, Packed, loader
from camshaft.handlers import checkpoints

from .runs import check_same_run, killed_in_mid_epoch, rows_of

# peft asks transformers for it by its old name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is:FutureWarning")
EXAMPLES = Path(__file__).parents[2] / "examples"
SFT = EXAMPLES / "sft.py"
SHORT = ("--modules", "[a-c]*.py", "--max-steps", "12", "--every", "4", "--batch-size", "6")


@pytest.fixture(scope="module")
def finished(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("sft")
    return directory, processes.run(SFT, "--directory", directory, *SHORT)


@pytest.fixture
def sft(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return __import__("sft")


@pytest.fixture
def chats(sft):
    return list(sft.conversations("[a-c]*.py"))


@pytest.fixture
def model(sft, chats):
    """A model with an adapter, its tokenizer, and the conversations that fit into 128 tokens."""
    from peft import LoraConfig, get_peft_model

    tokenizer = sft.build_tokenizer(chats)
    lora = LoraConfig(r=4, target_modules="all-linear", modules_to_save=["embed_tokens", "lm_head"])

    def make():
        return get_peft_model(sft.build_model(tokenizer), lora)

    return make, tokenizer, sft.usable([sft.encode(tokenizer, each) for each in chats], 128)


@pytest.mark.slow
def test_it_learns_to_answer_and_says_what_it_left_out(finished):
    directory, result = finished
    first, *_, last = [row["val/loss"] for row in rows_of(directory)]
    assert last < first < 6.91  # the logarithm of 1000 tokens
    assert last < 6.0
    said = r"^(\d+) conversations: left out are 0 without an answer, and (\d+) of more than 128"
    count, left_out = map(int, re.search(said, result.stdout, re.M).groups())
    assert 0 < left_out < count / 2
    assert f"12 steps: {last:.4f} nats a token of an answer\n" in result.stdout
    assert "\nWhat does textwrap.dedent do? " in result.stdout


@pytest.mark.slow
def test_the_export_is_an_adapter_that_gives_the_loss_of_the_run(finished, sft, chats):
    from peft import PeftModel
    from transformers import AutoTokenizer

    directory, _ = finished
    tokenizer = AutoTokenizer.from_pretrained(directory / "tokenizer")
    adapter = checkpoints(directory / "adapter").latest().path
    model = PeftModel.from_pretrained(sft.build_model(tokenizer), adapter, is_trainable=True)
    samples = sft.usable([sft.encode(tokenizer, each) for each in chats], 128)
    val_loader = loader(Packed(samples[::10], max_tokens=128), 6, training=False)
    assert sft.build(model).evaluate(val_loader).metrics["loss"] == pytest.approx(
        rows_of(directory)[-1]["val/loss"], rel=1e-12
    )


def test_labels_are_the_answers_and_their_ends_and_nothing_else(sft, chats, model):
    _, tokenizer, _ = model
    for chat in chats[:50]:
        sample = sft.encode(tokenizer, chat)
        said = [each["content"] for each in chat if each["role"] == "assistant"]
        learned = [label for label in sample["labels"] if label != -100]
        assert tokenizer.decode(learned) == "".join(f"{each}<|end|>" for each in said)
        pairs = zip(sample["input_ids"], sample["labels"], strict=True)
        assert all(label in (token, -100) for token, label in pairs)


def test_what_has_no_answer_or_does_not_fit_is_left_out_whole_and_told(sft, model, capsys):
    _, tokenizer, samples = model
    question = sft.encode(tokenizer, [{"role": "user", "content": "Why?"}])
    assert set(question["labels"]) == {-100}
    capsys.readouterr()
    assert sft.usable([question, *samples[:3]], max(len(s["input_ids"]) for s in samples[:2])) == [
        each
        for each in samples[:3]
        if len(each["input_ids"]) <= max(len(s["input_ids"]) for s in samples[:2])
    ]
    assert "4 conversations: left out are 1 without an answer, and" in capsys.readouterr().out
    with pytest.raises(ValueError, match="cut it"):  # as one that is not asked of what fits
        Packed(samples, max_tokens=8)


@pytest.mark.slow
def test_questions_without_an_answer_count_for_nothing_and_leave_the_weights_finite(sft, model):
    make, tokenizer, samples = model
    question = sft.encode(tokenizer, [{"role": "user", "content": "Why?"}])
    batches = [
        {name: value[None] for name, value in Packed([each], max_tokens=128)[0].items()}
        for each in (question, samples[0], question)
    ]
    ours, twin = make(), make()
    state = sft.build(ours, accumulate=3).run(batches, max_epochs=1)
    assert state.step == 1
    sft.build(twin).run(batches[1:2], max_epochs=1)
    assert all(map(torch.equal, ours.parameters(), twin.parameters()))


def test_it_is_the_loop_written_by_hand_to_the_last_bit(sft, model):
    make, _, samples = model
    train_loader = loader(Packed(samples, max_tokens=128), 4, training=True)
    ours, twin, rates = make(), make(), []
    engine = sft.build(ours, accumulate=2)
    engine.on(Events.GRADIENTS_READY)(
        lambda state: rates.append(state.optimizer.param_groups[0]["lr"])
    )
    engine.run(train_loader, max_steps=4)

    twin.config.use_cache = False
    learned = [each for each in twin.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(learned, weight_decay=0.0)
    first = islice(train_loader, 8)
    for rate, *window in zip(rates, first, first, strict=False):
        tokens = 0
        for batch in window:
            count = (batch["labels"][:, 1:] != -100).sum()
            (twin(**batch).loss * count).backward()
            tokens += count
        for each in learned:
            each.grad *= 1 / tokens
        clip_grad_norm_(learned, 1.0)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
    assert all(map(torch.equal, ours.parameters(), twin.parameters()))


def test_the_loss_of_rows_is_that_of_each_conversation_alone(sft, model):
    make, _, samples = model
    ours, chosen = make(), samples[:33]
    found = sft.build(ours).evaluate(loader(Packed(chosen, max_tokens=128), 4, training=False))
    total, tokens = 0.0, 0
    with torch.no_grad():
        for each in chosen:  # without a row, a batch, positions or a mask
            scores = log_softmax(ours(input_ids=torch.tensor([each["input_ids"]])).logits[0], 1)
            for place, label in enumerate(each["labels"]):
                if label != -100:
                    total -= float(scores[place - 1, label])
                    tokens += 1
    assert tokens == sum(label != -100 for each in chosen for label in each["labels"])
    assert float(found.metrics["loss"]) == pytest.approx(total / tokens, rel=1e-6)


@pytest.mark.slow
def test_killed_in_mid_epoch_and_run_again_it_is_the_same_run(processes, finished, tmp_path):
    command = (SFT, "--directory", tmp_path, *SHORT)
    manifest = killed_in_mid_epoch(processes, tmp_path, *command)
    assert 0 < manifest.iteration < 24
    assert processes.run(*command).stdout == finished[1].stdout
    check_same_run(tmp_path, finished[0])


@pytest.mark.slow
def test_two_ranks_take_the_steps_of_one(processes, finished, tmp_path):
    first, second = processes.run_ranks(2, SFT, "--directory", tmp_path, *SHORT)
    assert "12 steps" in first.stdout
    assert second.stdout == ""
    alone = rows_of(finished[0])
    assert [row["epoch"] for row in alone][-1] > 1  # so that the short last batch is among them
    for ours, theirs in zip(rows_of(tmp_path), alone, strict=True):
        assert ours["val/loss"] == pytest.approx(theirs["val/loss"], rel=1e-4)


def test_it_can_be_tried_out_on_two_batches(sft, tmp_path, caplog):
    options = ("--modules", "a*.py", "--max-steps", "1", "--max-batches", "2")
    sft.main(["--directory", str(tmp_path), *options])
    assert "max_batches=2: each pass over data" in caplog.text
