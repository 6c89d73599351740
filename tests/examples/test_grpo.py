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
from safetensors.torch import load_file
from torch.optim.swa_utils import get_ema_multi_avg_fn

from camshaft import Events
from camshaft.handlers import Checkpoint, History, Validate, checkpoints

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


def test_its_schedule_goes_by_steps_and_limits_by_steps_end_between_batches(example, caplog):
    rates = []

    def run(max_steps):
        rates.clear()
        engine = example["build"](llama(), ones, options(updates=4))
        engine.on(Events.STEP_COMPLETED)(
            lambda state: rates.append(state.optimizer.param_groups[0]["lr"])
        )
        return engine.run(BATCHES, max_steps=max_steps)

    assert run(20).step == 20
    assert rates[1] == pytest.approx(0.01)  # after two of twenty steps, the peak
    assert rates[-2] == pytest.approx(0.01 - 17 / 18 * 0.009)
    assert not caplog.messages
    state = run(18)
    assert (state.iteration, state.step) == (5, 20)
    assert "max_steps=18, and the run made 20 steps" in caplog.text


@pytest.mark.parametrize("reference", ["ema", "frozen"])
def test_left_between_two_batches_it_goes_on_as_the_same_run(example, reference, tmp_path):
    def run(directory, at=None):
        engine = example["build"](llama(), ones, options(reference=reference))
        engine.add(Checkpoint(directory, resume=True))
        if at is not None:
            engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state: state.interrupt("asked to"))
        state = engine.run(BATCHES, max_steps=18)
        return state.step, [
            *weights(engine.objects["model"]),
            *weights(engine.objects["reference"]),
        ]

    _, whole = run(tmp_path / "whole")
    for at in (1, 3, 5):
        assert run(tmp_path / f"{at}", at)[0] == 3 * at
        torch.rand(5)  # draws of somebody else
        assert same(run(tmp_path / f"{at}")[1], whole)


def test_a_stop_or_a_save_between_two_updates_of_a_batch_waits_for_its_last(example, tmp_path):
    engine = example["build"](llama(), ones, options())
    engine.add(Checkpoint(tmp_path, when=Events.STEP_COMPLETED(at=4)))
    engine.on(Events.STEP_COMPLETED(at=7))(lambda state: state.interrupt("asked to"))
    state = engine.run(BATCHES, max_steps=18)
    assert (state.iteration, state.step) == (3, 9)
    saved = [(each.manifest.iteration, each.manifest.step) for each in checkpoints(tmp_path)]
    assert saved[0] == (2, 6)


@pytest.mark.parametrize("when", [Events.STEP_COMPLETED(every=2), Events.ITERATION_COMPLETED])
def test_evaluations_in_between_change_nothing_even_between_two_updates(example, when):
    def run(*handlers):
        model = llama()
        history = History(when=Events.ITERATION_COMPLETED)
        engine = example["build"](model, ones, options()).add(*handlers, history)
        engine.run(BATCHES, max_steps=18)
        earned = [row["reward"] for row in history.rows if "reward" in row]
        assert len(earned) == 6
        return [*weights(model), torch.tensor(earned)]

    assert same(run(Validate([["55=", "1="]], when=when)), run())


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


def test_a_reward_that_is_nan_ends_the_run_before_it_reaches_the_weights(example):
    model = llama()
    before = weights(model)
    engine = example["build"](model, lambda prompt, answer: float("nan"), options())
    with pytest.raises(FloatingPointError, match="step 1"):
        engine.run(BATCHES, max_steps=9)
    assert same(weights(model), before)


def test_a_reward_that_raises_ends_the_run_and_mended_it_goes_on_as_the_same_run(example, tmp_path):
    def run(reward, directory):
        model = llama()
        engine = example["build"](model, reward, options())
        when = Events.ITERATION_COMPLETED
        engine.add(Checkpoint(directory, when=when, resume=True))
        engine.run(BATCHES, max_steps=18)
        return weights(model)

    def broken(prompt, answer):
        if prompt == "123=":
            raise ValueError("no verdict")
        return ones(prompt, answer)

    with pytest.raises(ValueError, match="no verdict") as told:
        run(broken, tmp_path / "broken")
    assert "in the process function" in told.value.__notes__[0]
    assert "iteration 3" in told.value.__notes__[0]
    assert same(run(ones, tmp_path / "broken"), run(ones, tmp_path / "whole"))


def test_a_reward_is_a_number_or_a_truth(example):
    model, other = llama(), llama()
    example["build"](model, lambda *each: ones(*each) > 1, options()).run(BATCHES, max_steps=9)
    example["build"](other, lambda *each: int(ones(*each) > 1), options()).run(BATCHES, max_steps=9)
    assert same(weights(model), weights(other))
    with pytest.raises(TypeError, match="NoneType"):
        example["build"](llama(), lambda *_: None, options()).run(BATCHES, max_steps=9)


def test_a_group_of_one_is_refused(example, tmp_path, capsys):
    with pytest.raises(SystemExit):
        example["main"](["--directory", str(tmp_path), "--group", "1"])
    assert "--group: needs 2 answers or more" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def rows(directory):
    return [json.loads(row) for row in (directory / "rows.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_its_reward_rises_from_its_start(processes, tmp_path):
    result = processes.run(GRPO, "--directory", tmp_path)
    assert float(re.search(r"^240 steps: ([\d.]+) of 1 earned$", result.stdout, re.M)[1]) > 0.65
    greedy = [row["val/reward"] for row in rows(tmp_path) if "val/reward" in row]
    assert greedy[0] < 0.5 < 0.65 < greedy[-1]
    drawn = [row for row in rows(tmp_path) if "reward" in row]
    assert all(row["step"] == 4 * row["iteration"] for row in drawn)
    first, last = (sum(row["reward"] for row in part) / 10 for part in (drawn[:10], drawn[-10:]))
    assert last > first + 0.25
    assert all({"kl", "clipped", "length", "loss", "lr"} <= row.keys() for row in drawn)


KILLED = """
import os, runpy, signal, sys
from camshaft import Events

example, at = sys.argv[1:3]
script = runpy.run_path(example)
build = script["build"]

def killed(*arguments):
    engine = build(*arguments)
    engine.on(eval(at))(lambda state: os.kill(os.getpid(), signal.SIGKILL))
    return engine

script["main"].__globals__["build"] = killed
script["main"](sys.argv[3:])
"""


@pytest.fixture(scope="module")
def whole(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    return directory, processes.run(GRPO, "--directory", directory, *SHORT).stdout


@pytest.mark.parametrize(
    "at",
    [
        "Events.STEP_COMPLETED(at=26)",  # between two updates of the seventh batch
        pytest.param("Events.STEP_COMPLETED(at=20)", marks=pytest.mark.slow),  # before the save
        pytest.param("Events.STEP_COMPLETED(at=3)", marks=pytest.mark.slow),  # before any save
    ],
)
def test_killed_between_two_updates_of_a_batch_it_goes_on_as_the_same_run(
    processes, whole, at, tmp_path
):
    expected, printed = whole
    processes.run(KILLED, GRPO, at, "--directory", tmp_path, *SHORT, code=-9)
    assert [each.manifest.step for each in checkpoints(tmp_path)] == [20] * ("26" in at)
    assert processes.run(GRPO, "--directory", tmp_path, *SHORT).stdout.endswith(
        printed.splitlines()[-1] + "\n"
    )
    assert rows(tmp_path) == rows(expected)
    ours, theirs = (checkpoints(each).latest().path for each in (tmp_path, expected))
    assert ours.name == theirs.name
    for name in ("model", "reference"):
        file = f"{name}.safetensors"
        assert (ours / file).read_bytes() == (theirs / file).read_bytes()
    some, others = (load_file(each / "train.safetensors") for each in (ours, theirs))
    keys = [key for key in others if not key.startswith("run.")]  # generators nobody draws from
    assert keys
    assert all(torch.equal(some[key], others[key]) for key in keys)


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
@pytest.mark.parametrize("reference", ["ema", "frozen"])
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
