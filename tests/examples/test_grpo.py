"""The example of GRPO: what it computes, what it counts, and that it resumes."""

import argparse
import json
import math
import re
import runpy
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from camshaft import Events
from camshaft.handlers import History, checkpoints

from .runs import check_same_run, rows_of

transformers = pytest.importorskip("transformers")
GRPO = Path(__file__).parents[2] / "examples" / "grpo.py"
SHORT = ("--warm-up", 6, "--max-steps", 28, "--batch-size", 2, "--group", 4)


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(GRPO))


def llama(seed=0):
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(vocab_size=13, num_attention_heads=2, **sizes)
    return transformers.LlamaForCausalLM(config)


def options(**changed):
    usual = {"updates": 3, "group": 4, "length": 4, "clip": 0.05, "beta": 0.1, "lr": 0.01}
    return argparse.Namespace(**(usual | {"reference": "ema", "seed": 7} | changed))


def ones(prompt, answer):
    """Earned by digits that are small: some answers of a model that knows nothing earn more."""
    return float(sum(digit in "01234" for digit in answer))


BATCHES = [["21=", "345="], ["6=", "10=", "77="], ["123="]]  # of unlike lengths and sizes


def weights(model):
    return [each.detach().clone() for each in model.parameters()]


def same(some, others):
    return all(map(torch.equal, some, others))


@pytest.mark.parametrize("reference", ["ema", "frozen"])
def test_its_steps_are_those_of_a_loop_by_hand(example, reference):
    model, given = llama(), options(reference=reference)
    history = History(when=Events.ITERATION_COMPLETED)
    engine, rates = example["build"](model, ones, given).add(history), []
    engine.on(Events.GRADIENTS_READY)(
        lambda state: rates.append(state.optimizer.param_groups[0]["lr"])
    )
    state = engine.run(BATCHES, max_steps=18)
    assert (state.iteration, state.step) == (6, 18)

    by_hand = llama()
    follower, fold = deepcopy(by_hand), get_ema_multi_avg_fn(0.98)
    optimizer = torch.optim.AdamW(by_hand.parameters(), lr=0.01, weight_decay=0.0)
    used, found = iter(rates), []
    for iteration, texts in enumerate(BATCHES * 2, 1):
        asked = [text for text in texts for _ in range(4)]
        prompts, known = example["encode"](asked)
        tokens, mask = example["generate"](by_hand, prompts, known, 4, hash((7, iteration, 0)))
        width = prompts.shape[1]
        answers = example["decode"](tokens[:, width:], mask[:, width:])
        earned = torch.tensor([*map(ones, asked, answers)])
        advantages = []
        for group in earned.split(4):
            spread = (group - group.mean()).square().mean().sqrt()
            advantages += [(group - group.mean()) / (spread + 1e-4)]
        advantages = torch.cat(advantages)

        def likely(model, tokens=tokens, mask=mask, width=width):
            places = (mask.long().cumsum(1) - 1).clamp(min=0)
            logits = model(tokens, attention_mask=mask.long(), position_ids=places).logits
            each = torch.log_softmax(logits[:, width - 1 : -1], 2)
            return torch.stack(
                [
                    row[range(len(row)), token]
                    for row, token in zip(each, tokens[:, width:], strict=True)
                ]
            )

        before, expected = likely(by_hand).detach(), likely(follower).detach()
        for _ in range(3):
            now = likely(by_hand)
            ratio = torch.exp(now - before)
            gain = torch.minimum(
                ratio * advantages[:, None], ratio.clamp(0.95, 1.05) * advantages[:, None]
            )
            kl = torch.exp(expected - now) - (expected - now) - 1
            optimizer.zero_grad()
            ((0.1 * kl - gain) * mask[:, width:]).sum().backward()
            for each in by_hand.parameters():
                each.grad *= 1 / mask[:, width:].sum()
            torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
            optimizer.param_groups[0]["lr"] = next(used)
            optimizer.step()
            if reference == "ema":
                with torch.no_grad():
                    pairs = follower.parameters(), by_hand.parameters()
                    fold(*map(list, pairs), 1)
        found.append(float(earned.mean()))
    assert same(weights(model), weights(by_hand))
    assert same(weights(engine.objects["reference"]), weights(follower))
    assert [row["reward"] for row in history.rows if "reward" in row] == found
    assert len({*found}) > 2


def test_an_evaluation_takes_the_likeliest_answer_to_each_prompt(example):
    engine = example["build"](llama(), lambda prompt, answer: float(len(prompt)), options())
    one, two = (engine.evaluate([["1=", "123="], ["12="]]).metrics for _ in range(2))
    assert one == two
    assert float(one["reward"]) == 3.0  # a mean over prompts, not over batches


def test_a_group_whose_answers_earn_the_same_moves_nothing(example):
    model = llama()
    before = weights(model)
    engine = example["build"](model, lambda *_: 0.5, options(beta=0.0))
    state = engine.run(BATCHES, max_steps=9)
    assert state.step == 9
    assert float(state.metrics["loss"]) == 0.0
    assert same(weights(model), before)
    alone = example["build"](model, ones, options(beta=0.0, group=1))  # a group of one
    alone.run(BATCHES, max_steps=9)
    assert same(weights(model), before)


def test_answers_that_are_empty_or_hold_padding_are_counted_up_to_their_end(example):
    model = llama()
    torch.nn.init.zeros_(model.model.norm.weight)  # so each token is as likely as any other
    asked = example["encode"](["1=", "123="] * 100)
    tokens, mask = example["generate"](model, *asked, 4, seed=1)
    answers, written = tokens[:, 4:], mask[:, 4:]
    texts = example["decode"](answers, written)
    assert "" in texts
    assert any("_" in text for text in texts)
    for row, kept, text in zip(answers.tolist(), written.tolist(), texts, strict=True):
        ends = row.index(1) + 1 if 1 in row else len(row)
        assert kept == [place < ends for place in range(len(row))]
        assert len(text) == ends - (1 in row)
    likely = example["log_probabilities"](model, tokens, mask, 4)[written]
    assert likely.detach() == pytest.approx(-math.log(13))


def test_prompts_of_any_length_in_a_batch_have_the_probabilities_that_they_have_alone(example):
    model = llama().double()
    tokens, mask = example["generate"](model, *example["encode"](["1=", "12345="]), 4, seed=3)
    both = example["log_probabilities"](model, tokens, mask, 6)
    alone = example["log_probabilities"](model, tokens[:1, 4:], mask[:1, 4:], 2)
    assert torch.allclose(both[:1], alone, atol=1e-6)  # a log-softmax in float32


def test_padding_that_a_model_finds_impossible_makes_no_term_infinite(example):
    model = llama()
    asked = example["encode"](["1=", "123="] * 100)
    tokens, mask = example["generate"](model, *asked, 4, seed=1)
    model.lm_head.weight.data *= 1e4  # it is certain of each next token
    likely = example["log_probabilities"](model, tokens, mask, 4)
    padding = ~mask[:, 4:]
    assert likely.min() < -100  # the exponential of its distance to a reference is infinite
    assert padding.any()
    assert (likely[padding] == 0).all()


def test_a_group_of_one_is_refused(example, tmp_path, capsys):
    with pytest.raises(SystemExit):
        example["main"](["--directory", str(tmp_path), "--group", "1"])
    assert "--group: needs 2 answers or more" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.soak
def test_its_reward_rises_from_its_start(processes, tmp_path):
    result = processes.run(GRPO, "--directory", tmp_path)
    assert float(re.search(r"^240 steps: ([\d.]+) of 1 earned$", result.stdout, re.M)[1]) > 0.65
    greedy = [row["val/reward"] for row in rows_of(tmp_path) if "val/reward" in row]
    assert greedy[0] < 0.5 < 0.65 < greedy[-1]
    drawn = [row for row in rows_of(tmp_path) if "reward" in row]
    assert all(row["step"] == 4 * row["iteration"] for row in drawn)
    first, last = (sum(row["reward"] for row in part) / 10 for part in (drawn[:10], drawn[-10:]))
    assert last > first + 0.25
    assert all({"kl", "clipped", "length", "loss", "lr"} <= row.keys() for row in drawn)


KILLED = """
import os, runpy, signal, sys
from camshaft import Events
from camshaft.handlers import checkpoints

example, at, _, directory = sys.argv[1:5]
script = runpy.run_path(example)
build = script["build"]

def kill(state):
    while state.step > 20 and not checkpoints(directory):  # that of step 20 is being written
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGKILL)

def killed(*arguments):
    engine = build(*arguments)
    engine.on(Events.STEP_COMPLETED(at=int(at)))(kill)
    return engine

script["main"].__globals__["build"] = killed
script["main"](sys.argv[3:])
"""


@pytest.fixture(scope="module")
def whole(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    return directory, processes.run(GRPO, "--directory", directory, *SHORT).stdout


@pytest.mark.slow
# In the seventh batch, and before any save.
@pytest.mark.parametrize("at", [26, pytest.param(3, marks=pytest.mark.soak)])
def test_killed_between_two_updates_of_a_batch_it_goes_on_as_the_same_run(
    processes, whole, at, tmp_path
):
    expected, printed = whole
    processes.run(KILLED, GRPO, at, "--directory", tmp_path, *SHORT, code=-9)
    assert [each.manifest.step for each in checkpoints(tmp_path)] == [20] * (at == 26)
    assert processes.run(GRPO, "--directory", tmp_path, *SHORT).stdout.endswith(
        printed.splitlines()[-1] + "\n"
    )
    check_same_run(tmp_path, expected, "model", "reference")


RANKS = """
import argparse, json, runpy, sys
import torch, transformers
from torch.nn.parallel import DistributedDataParallel
from camshaft import Events, loader, ranks
from camshaft.handlers import Checkpoint

example, directory, at = runpy.run_path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
options = argparse.Namespace(**json.loads(sys.argv[4]))
with ranks.process_group():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(vocab_size=13, num_attention_heads=2, **sizes)
    model = DistributedDataParallel(transformers.LlamaForCausalLM(config))
    earned = lambda prompt, answer: float(sum(digit in "01234" for digit in answer))
    engine = example["build"](model, earned, options)
    engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED, resume=True))

    @engine.on(Events.STEP_COMPLETED(at=1))
    def tell(state):
        print(json.dumps([ranks.rank(), state.batch, float(state.metrics["grad_norm"])]))

    if at:
        engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state: state.interrupt("asked to"))
    prompts = [f"{number}=" for number in range(9)]  # of which the last batch holds one
    engine.run(loader(prompts, 4, training=True, collate_fn=list), max_steps=12)
"""


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["ema", pytest.param("frozen", marks=pytest.mark.soak)])
def test_on_two_ranks_a_step_is_the_mean_over_all_tokens_and_a_resume_is_exact(
    example, processes, tmp_path, reference
):
    given = options(updates=2, reference=reference)
    asked = json.dumps(vars(given))
    told = [
        json.loads(each.stdout)
        for each in processes.run_ranks(2, RANKS, GRPO, tmp_path / "whole", 0, asked)
    ]
    processes.run_ranks(2, RANKS, GRPO, tmp_path / "parts", 3, asked)
    processes.run_ranks(2, RANKS, GRPO, tmp_path / "parts", 0, asked)
    ours, theirs = (checkpoints(tmp_path / name).latest().path for name in ("parts", "whole"))
    for name in ("model.safetensors", "reference.safetensors"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()

    model, loss, count = llama(), 0, 0  # the first step: each ratio is 1, and the KL term 0
    for rank, texts, _ in told:
        prompts = [text for text in texts for _ in range(4)]
        tokens, mask = example["generate"](
            model, *example["encode"](prompts), 4, seed=hash((7, 1, rank))
        )
        written = mask[:, 2:]
        earned = [*map(ones, prompts, example["decode"](tokens[:, 2:], written))]
        groups = torch.tensor(earned).view(-1, 4)
        better = (groups - groups.mean(1, keepdim=True)) / (
            groups.std(1, keepdim=True, correction=0) + 1e-4
        )
        likely = example["log_probabilities"](model, tokens, mask, 2)
        loss = loss - (likely * better.view(-1, 1) * written).sum()
        count = count + written.sum()
    (loss / count).backward()
    norm = torch.nn.utils.get_total_norm([each.grad for each in model.parameters()])
    assert [each for *_, each in told] == pytest.approx([float(norm)] * 2, rel=1e-5)
