"""GRPO: a small language model sorts digits for a reward that is a Python function.

A model of the transformers library learns from a few right answers first, and then from its own
(Shao et al., 2024): it writes a group of answers to each prompt, and those that earn more than
their group become more likely. Each batch makes several steps. The random numbers of the answers
belong to the run, so a run that was killed goes on with the same answers.

    pip install transformers
    python examples/grpo.py
"""

import argparse
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from camshaft import (
    Engine,
    Events,
    State,
    Update,
    count_next_tokens,
    loader,
    ranks,
    supervised,
    unwrap,
)
from camshaft.handlers import (
    EMA,
    Average,
    Checkpoint,
    ClipGradNorm,
    ConsoleLines,
    JSONLines,
    LRSchedule,
    NonFiniteGuard,
    StopOnSignal,
    Validate,
)
from camshaft.handlers.schedules import linear, warmup

CHARACTERS = "_.0123456789="  # what a token is: padding, the end of an answer, ...
PADDING, END = 0, 1


def encode(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """A row of tokens for each text, and the mask of what is not padding, which goes first."""
    longest = max(map(len, texts))
    rows = [[*map(CHARACTERS.index, text.rjust(longest, "_"))] for text in texts]
    masks = [[place >= longest - len(text) for place in range(longest)] for text in texts]
    return torch.tensor(rows), torch.tensor(masks)


def decode(answers: Tensor, mask: Tensor) -> list[str]:
    """The text of each answer, without its end."""
    rows = zip(answers.tolist(), mask.tolist(), strict=True)
    return [
        "".join(
            CHARACTERS[token] for token, is_written in zip(*row, strict=True) if is_written
        ).removesuffix(".")
        for row in rows
    ]


def reward(prompt: str, answer: str) -> float:
    """What an answer earns: 1.0 if it is right, as "1123" is for the prompt "2113="."""
    return float(answer == "".join(sorted(prompt.removesuffix("="))))


def generate(
    model: Any, prompts: Tensor, known: Tensor, length: int, seed: int | None = None
) -> tuple[Tensor, Tensor]:
    """Prompts with answers of at most `length` tokens, and the mask of what is not padding.

    An answer is the likeliest one, or with a seed drawn at random. What draws random numbers
    elsewhere, such as dropout or an evaluation, does not change it.
    """
    ways: dict[str, Any] = {"do_sample": False}
    if seed is not None:  # from the whole distribution, whose probabilities the loss computes
        ways = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        ways["repetition_penalty"] = 1.0
    plain: Any = unwrap(model)
    with torch.random.fork_rng():
        torch.manual_seed(seed or 0)
        tokens: Tensor = plain.generate(
            prompts,
            attention_mask=known.long(),
            max_new_tokens=length,
            pad_token_id=PADDING,
            eos_token_id=END,
            **ways,
        )
    ends = (tokens[:, prompts.shape[1] :] == END).long()
    return tokens, torch.cat([known, ends.cumsum(1) == ends], 1)  # up to the first end


def log_probabilities(model: Any, tokens: Tensor, mask: Tensor, start: int) -> Tensor:
    """The log-probability of each token from `start` on, 0 where there is none: (row, token)."""
    places = (mask.cumsum(1) - 1).clamp(min=0)  # as `generate` counts them
    logits = model(input_ids=tokens, attention_mask=mask.long(), position_ids=places).logits
    likely = logits[:, start - 1 : -1].float().log_softmax(-1)
    chosen: Tensor = likely.gather(-1, tokens[:, start:, None]).squeeze(-1)
    return chosen.masked_fill(~mask[:, start:], 0.0)  # so that no padding can make it infinite


def build(
    model: Any, reward: Callable[[str, str], float], options: argparse.Namespace
) -> Engine[list[str], Tensor]:
    """The engine that improves the model by its rewards, and measures them in an evaluation."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0)
    update = Update(optimizer)
    device = next(model.parameters()).device

    def learn(state: State[list[str], Tensor], texts: list[str]) -> Tensor:
        group = options.group if state.training else 1
        asked = [text for text in texts for _ in range(group)]
        prompts, known = (each.to(device) for each in encode(asked))
        start = prompts.shape[1]
        # Numbers have the same hash in every process, so a resumed run draws the same answers.
        seed = hash((options.seed, state.iteration, ranks.rank())) if state.training else None
        tokens, mask = generate(model, prompts, known, options.length, seed)
        written = mask[:, start:]  # with the end of an answer, which is a choice of the model too
        answers = decode(tokens[:, start:], written)
        earned = [float(reward(*each)) for each in zip(asked, answers, strict=True)]
        rewards = torch.tensor(earned, device=device)
        lengths = written.sum(1).float()
        state.metrics.update(reward=rewards.mean(), length=lengths.mean())
        if not state.training:
            return rewards
        groups = rewards.view(-1, group)
        better = groups - groups.mean(1, keepdim=True)  # 0 where all answers earn the same
        advantages = (better / (groups.std(1, keepdim=True, correction=0) + 1e-4)).view(-1, 1)
        with torch.no_grad():
            reference = state.engine.objects["reference"]
            expected = log_probabilities(reference, tokens, mask, start)
        old, count = None, written.sum()
        for _ in range(options.updates):
            now = log_probabilities(model, tokens, mask, start)
            old = now.detach() if old is None else old
            ratio, gap = (now - old).exp(), expected - now
            gain = ratio * advantages
            clipped = ratio.clamp(1 - options.clip, 1 + options.clip) * advantages
            kl = gap.exp() - gap - 1
            loss = ((options.beta * kl - torch.min(gain, clipped)) * written).sum()
            state.metrics.update(
                loss=loss.detach() / count,
                kl=(kl.detach() * written).sum() / count,
                clipped=((clipped < gain) & written).sum() / count,
            )
            update(state, loss, weight=count)  # the mean over all tokens, of all ranks
        return rewards

    objects = {"model": model, "optimizer": optimizer}
    engine = Engine(learn, update, objects=objects)
    if options.reference == "ema":  # it follows the model slowly
        engine.add(EMA(0.98, warmup=False, name="reference"))
    else:
        engine.objects["reference"] = deepcopy(unwrap(model)).requires_grad_(False)
    return engine.add(
        NonFiniteGuard(),  # a reward that is NaN ends the run, before it reaches the weights
        ClipGradNorm(1.0),
        LRSchedule(warmup(0.1).then(linear(final=0.1))),  # over `max_steps`
        Average("reward", weight=len),  # in an evaluation, the mean over it
        Average("length", weight=len),
    )


def make_prompts(count: int, seed: int) -> list[str]:
    """Prompts of three to five digits, such as "2113="."""
    draw = random.Random(seed)
    return ["".join(draw.choices("0123456789", k=draw.randint(3, 5))) + "=" for _ in range(count)]


def warm_up(model: Any, directory: Path, steps: int) -> None:
    """Learn what an answer looks like from right ones."""

    def batch(texts: list[str]) -> dict[str, Tensor]:
        tokens, mask = encode([text + "".join(sorted(text[:-1])) + "." for text in texts])
        labels = tokens.masked_fill(~mask, -100)
        return {"input_ids": tokens, "attention_mask": mask.long(), "labels": labels}

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    engine = supervised(model, optimizer, weight=count_next_tokens)
    engine.add(Checkpoint(directory, resume=True), StopOnSignal())
    engine.run(loader(make_prompts(4096, 1), 64, training=True, collate_fn=batch), max_steps=steps)


def main(arguments: Sequence[str] | None = None) -> State[list[str], Tensor]:
    """Warm up and learn from rewards, or carry on."""
    parser = argparse.ArgumentParser(description="GRPO: rewards for sorted digits.")
    parser.add_argument("--directory", type=Path, default=Path("runs/grpo"))
    parser.add_argument("--warm-up", type=int, default=40, help="steps on right answers")
    parser.add_argument("--max-steps", type=int, default=240, help="a multiple of --updates")
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--updates", type=int, default=4, help="steps of a batch of answers")
    parser.add_argument("--group", type=int, default=8, help="answers to a prompt")
    parser.add_argument("--batch-size", type=int, default=16, help="prompts of a batch")
    parser.add_argument("--length", type=int, default=8, help="tokens of an answer, at most")
    parser.add_argument("--clip", type=float, default=0.2, help="of the ratio of probabilities")
    parser.add_argument("--beta", type=float, default=0.02, help="the weight of the KL term")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--reference", choices=["ema", "frozen"], default="ema")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.group < 2:
        parser.error("--group: needs 2 answers or more, since each is compared with its group")

    torch.manual_seed(options.seed)
    sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=len(CHARACTERS), num_attention_heads=4, **sizes)
    model: Any = LlamaForCausalLM(config)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    warm_up(model, options.directory / "warm-up", options.warm_up)
    engine = build(model, reward, options).add(
        Validate(
            loader(make_prompts(256, 2), 64, training=False, collate_fn=list),
            when=Events.STARTED | Events.EPOCH_COMPLETED(last=True),
        ),
        Checkpoint(options.directory, when=Events.STEP_COMPLETED(every=20, last=True), resume=True),
        JSONLines(
            options.directory / "rows.jsonl",
            when=Events.ITERATION_COMPLETED | Events.EPOCH_COMPLETED,
        ),
        StopOnSignal(),
        ConsoleLines(when=Events.ITERATION_COMPLETED(every=10)),
    )
    data = loader(make_prompts(512, 3), options.batch_size, training=True, collate_fn=list)
    state = engine.run(data, max_steps=options.max_steps, max_batches=options.max_batches)
    print(f"{state.step} steps: {float(state.metrics['val/reward']):.2f} of 1 earned")
    return state


if __name__ == "__main__":
    main()
