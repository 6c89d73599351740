"""The example of direct preference optimisation: its loss, its reference, and that it resumes."""

import math
import re
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy, log_softmax, logsigmoid
from torch.nn.utils import clip_grad_norm_

from camshaft import Events, loader
from camshaft.handlers import checkpoints

from .runs import check_same_run, killed_in_mid_epoch, rows_of

EXAMPLES = Path(__file__).parents[2] / "examples"
SFT, DPO = EXAMPLES / "sft.py", EXAMPLES / "dpo.py"
OF_START = ("--modules", "[a-c]*.py", "--max-steps", "12", "--batch-size", "6")
SHORT = ("--modules", "[a-c]*.py", "--max-steps", "12", "--every", "4")
pytestmark = [
    pytest.mark.slow,  # of the start that it trains first; test_sft.py has the fast ones
    # peft asks transformers for it by its old name.
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is:FutureWarning"),
]


@pytest.fixture(scope="module")
def start(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("sft")
    processes.run(SFT, "--directory", directory, *OF_START)
    return directory


@pytest.fixture(scope="module")
def finished(processes, start, tmp_path_factory):
    directory = tmp_path_factory.mktemp("dpo")
    return directory, processes.run(DPO, "--start", start, "--directory", directory, *SHORT)


@pytest.fixture
def dpo(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return __import__("dpo")


@pytest.fixture
def parts(dpo, start):
    """What makes the start, the adapter for it, and the pairs of 128 tokens at most."""
    from peft import LoraConfig, PeftModel
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(start / "tokenizer")
    adapter = checkpoints(start / "adapter").latest().path

    def make():
        base = dpo.sft.build_model(tokenizer)
        return PeftModel.from_pretrained(base, adapter).merge_and_unload()

    both = dpo.preferences(list(dpo.sft.conversations("[a-c]*.py")))
    encode = dpo.sft.encode
    pairs = [(encode(tokenizer, chosen), encode(tokenizer, rejected)) for chosen, rejected in both]
    lora = LoraConfig(r=4, target_modules="all-linear")
    return make, lora, dpo.usable(pairs, 128)


def test_it_learns_what_is_preferred_and_says_what_it_left_out(finished):
    directory, result = finished
    first, *_, last = rows_of(directory)
    assert last["val/loss"] < first["val/loss"] < math.log(2)
    assert last["val/margin"] > first["val/margin"] > 0
    assert last["val/margin"] == pytest.approx(last["val/chosen"] - last["val/rejected"], abs=1e-6)
    assert last["val/accuracy"] > 0.9
    assert f"12 steps: {last['val/accuracy']:.1%} of pairs are right\n" in result.stdout
    said = r"^(\d+) pairs: left out are (\d+) of more than 128 tokens$"
    pairs, left_out = map(int, re.search(said, result.stdout, re.M).groups())
    assert 0 < left_out < pairs / 2


def test_a_pair_is_one_question_with_two_answers(dpo):
    chats = [
        [{"content": "What?"}, {"content": "Return a list."}],
        [{"content": "Who?"}, {"content": "Returns the names. And more."}],
        [{"content": "Why?"}, {"content": "Because."}],
    ]
    said = [[each["content"] for chat in pair for each in chat] for pair in dpo.preferences(chats)]
    assert said == [
        ["What?", "Returns a list.", "What?", "Return a list."],
        ["Who?", "Returns the names. And more.", "Who?", "Return the names. And more."],
    ]


def log_probability(model, sample):
    """Of an answer alone, without a batch: the sum over its tokens, one by one."""
    scores = log_softmax(model(input_ids=torch.tensor([sample["input_ids"]])).logits[0], 1)
    places = enumerate(sample["labels"])
    return sum(float(scores[place - 1, label]) for place, label in places if label != -100)


def test_the_loss_and_its_parts_are_those_of_each_pair_alone(dpo, parts):
    from peft import get_peft_model

    make, lora, pairs = parts
    model, reference = get_peft_model(make(), lora), make()
    engine = dpo.build(model, beta=0.3)
    engine.run(loader(pairs, 8, training=True, collate_fn=dpo.collate), max_steps=6)
    chosen_pairs = pairs[:21]  # the last batch is short
    data = loader(chosen_pairs, 8, training=False, collate_fn=dpo.collate)
    metrics = engine.evaluate(data).metrics
    with torch.no_grad():
        gained = torch.tensor(
            [
                [log_probability(model, each) - log_probability(reference, each) for each in pair]
                for pair in chosen_pairs
            ],
            dtype=torch.float64,
        )
    chosen, rejected = 0.3 * gained.T
    margin = chosen - rejected
    expected = {
        "loss": -logsigmoid(margin).mean(),
        "chosen": chosen.mean(),
        "rejected": rejected.mean(),
        "margin": margin.mean(),
        "accuracy": (margin > 0).double().mean(),
    }
    for name, value in expected.items():
        assert float(metrics[name]) == pytest.approx(float(value), abs=2e-5), name


def test_it_is_the_loop_written_by_hand_with_a_copy_as_its_reference_to_the_last_bit(dpo, parts):
    from peft import get_peft_model

    make, lora, pairs = parts
    data = loader(pairs, 4, training=True, collate_fn=dpo.collate)
    rates, models = [], []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(get_peft_model(make(), lora))
    ours, twin = models
    reference = make().eval()
    engine = dpo.build(ours, beta=0.1, accumulate=2)
    engine.on(Events.GRADIENTS_READY)(
        lambda state: rates.append(state.optimizer.param_groups[0]["lr"])
    )
    engine.run(data, max_steps=4)

    def answers(model, batch):
        scores = model(input_ids=batch["input_ids"]).logits[:, :-1].transpose(1, 2)
        return -cross_entropy(scores, batch["labels"][:, 1:], reduction="none").sum(1)

    learned = [each for each in twin.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(learned, weight_decay=0.0)
    batches = islice(data, 8)
    for rate, *window in zip(rates, batches, batches, strict=False):
        for batch in window:
            with torch.no_grad():
                of_reference = answers(reference, batch)
            gained = answers(twin, batch) - of_reference
            chosen, rejected = gained[:4], gained[4:]
            (-logsigmoid(0.1 * chosen - 0.1 * rejected).mean() * 4).backward()
        for each in learned:
            each.grad *= 1 / 8
        clip_grad_norm_(learned, 1.0)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
    assert all(map(torch.equal, ours.parameters(), twin.parameters()))
    assert any(each.any() for name, each in ours.named_parameters() if "lora_B" in name)


def test_the_reference_is_the_frozen_model_and_no_checkpoint_holds_a_copy(finished, start):
    directory, _ = finished
    saved = checkpoints(directory).latest()
    learned = [name for name in saved.state_dict("model") if "lora_" in name]
    assert learned
    files = {path.name for path in saved.path.iterdir()}
    assert files == {
        *("model.safetensors", "train.safetensors", "state.json", "manifest.json"),
        *("rank-00000.json", "rank-00000.safetensors"),
    }
    exported = load_file(
        checkpoints(directory / "adapter").latest().path / "adapter_model.safetensors"
    )
    assert len(exported) == len(learned)


@pytest.mark.soak
def test_killed_in_mid_epoch_and_run_again_it_is_the_same_run(processes, finished, start, tmp_path):
    command = (DPO, "--start", start, "--directory", tmp_path, *SHORT)
    assert 0 < killed_in_mid_epoch(processes, tmp_path, *command).iteration < 24
    assert processes.run(*command).stdout == finished[1].stdout
    check_same_run(tmp_path, finished[0])


def test_a_missing_start_is_named(processes, tmp_path):
    missing = processes.run(DPO, "--start", tmp_path / "none", code=2)
    assert "run `python examples/sft.py` first" in missing.stderr


def test_two_ranks_take_the_steps_of_one(processes, finished, start, tmp_path):
    command = (DPO, "--start", start, "--directory", tmp_path, *SHORT)
    first, second = processes.run_ranks(2, *command)
    assert "12 steps" in first.stdout
    assert second.stdout == ""
    for ours, theirs in zip(rows_of(tmp_path), rows_of(finished[0]), strict=True):
        assert ours["val/loss"] == pytest.approx(theirs["val/loss"], rel=1e-4)
        assert ours["val/chosen"] == pytest.approx(theirs["val/chosen"], abs=1e-4)
