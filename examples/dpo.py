"""Direct preference optimisation: a chat model learns which of two answers people prefer.

The start is the model of `sft.py`. It answers "Return ...", as most docstrings do; here "Returns
..." is preferred. The reference is the start too: the model without its new adapter, so that it
takes no memory, and no checkpoint holds it. All of it takes fifteen seconds of a processor.

    python examples/sft.py
    python examples/dpo.py
    torchrun --nproc-per-node=2 examples/dpo.py

Rafailov et al., 2023: https://arxiv.org/abs/2305.18290
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sft  # type: ignore[import-not-found]  # beside this file
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid
from transformers import AutoTokenizer

from camshaft import Engine, Events, Padded, State, loader, ranks, supervised
from camshaft.handlers import (
    Checkpoint,
    ClipGradNorm,
    Export,
    JSONLines,
    LRSchedule,
    ProgressBar,
    StopOnSignal,
    Validate,
    checkpoints,
)
from camshaft.handlers.schedules import cosine, warmup

Chat = list[dict[str, str]]
Sample = dict[str, list[int]]
Pair = tuple[Sample, Sample]
Loss = tuple[Tensor, dict[str, Tensor]]
pad = Padded(fields={"labels": -100})


def preferences(chats: Sequence[Chat]) -> Iterator[tuple[Chat, Chat]]:
    """The same question with two answers, of which people prefer the first."""
    known = {answer["content"].split()[0] for _, answer, *_ in chats}
    for question, answer, *_ in chats:
        first, _, rest = answer["content"].partition(" ")
        verb = first.removesuffix("s")
        if {verb, f"{verb}s"} <= known:
            chosen, rejected = ({**answer, "content": f"{v} {rest}"} for v in (f"{verb}s", verb))
            yield [question, chosen], [question, rejected]


def usable(pairs: Sequence[Pair], max_tokens: int) -> list[Pair]:
    """The pairs of which both answers fit, whole; says how many do not."""
    kept = [each for each in pairs if max(len(one["input_ids"]) for one in each) <= max_tokens]
    left = len(pairs) - len(kept)
    sft.say(f"{len(pairs)} pairs: left out are {left} of more than {max_tokens} tokens")
    return kept


def collate(pairs: Sequence[Pair]) -> dict[str, Tensor]:
    """A batch of n pairs as 2 n rows: all chosen answers, then all rejected ones."""
    chosen, rejected = zip(*pairs, strict=True)
    rows = [{name: torch.tensor(each[name]) for name in each} for each in (*chosen, *rejected)]
    batch: dict[str, Tensor] = pad(rows)  # behind the answers, which do not look ahead
    return batch


def log_probabilities(logits: Tensor, labels: Tensor) -> Tensor:
    """Of the answer in each row: the sum over its tokens, not their mean."""
    logits, labels = logits[:, :-1].float(), labels[:, 1:]  # a token predicts the next one
    losses = cross_entropy(logits.transpose(1, 2), labels, reduction="none")  # 0 where -100
    return -losses.sum(1)


def preference_loss(model: PeftModel, beta: float) -> Callable[..., Loss]:
    """The loss of DPO, where the reference is the model with its adapter switched off."""

    def loss_fn(output: Any, labels: Tensor, batch: Mapping[str, Tensor]) -> Loss:
        with torch.no_grad(), model.disable_adapter():
            reference = model(input_ids=batch["input_ids"]).logits
        gained = log_probabilities(output.logits, labels) - log_probabilities(reference, labels)
        chosen, rejected = (beta * gained).chunk(2)
        margin = chosen - rejected
        return -logsigmoid(margin).mean(), {
            "chosen": chosen.mean(),
            "rejected": rejected.mean(),
            "margin": margin.mean(),
            "accuracy": (margin > 0).float().mean(),
        }

    return loss_fn


def count_pairs(output: Any) -> int:
    """What the loss and its parts are a mean over."""
    return len(output.target) // 2


def build(model: PeftModel, beta: float = 0.1, accumulate: int = 1) -> Engine[Any, Any]:
    """The engine that trains what needs a gradient: the adapter."""
    trained = ranks.prepare(model)
    learned = [each for each in trained.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=7e-4, weight_decay=0.0)
    loss_fn = preference_loss(model, beta)
    engine = supervised(trained, optimizer, loss_fn, weight=count_pairs, accumulate=accumulate)
    return engine.add(ClipGradNorm(1.0), LRSchedule(warmup(0.1).then(cosine(final=0.1))))


def main(arguments: Sequence[str] | None = None) -> State[Any, Any]:
    """Train the adapter, or carry on, and ask the model before and after."""
    parser = argparse.ArgumentParser(description="Direct preference optimisation.")
    parser.add_argument("--directory", type=Path, default=Path("runs/dpo"))
    parser.add_argument("--start", type=Path, default=Path("runs/sft"), help="a run of sft.py")
    parser.add_argument("--beta", type=float, default=0.1, help="how near the reference it stays")
    parser.add_argument("--max-steps", type=int, default=30)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--every", type=int, default=10, help="steps between two saves")
    parser.add_argument("--batch-size", type=int, default=8, help="pairs, over all ranks")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=128, help="of a question and its answer")
    parser.add_argument("--modules", default="*.py", help="of the standard library")
    options = parser.parse_args(arguments)
    if not (adapter := checkpoints(options.start / "adapter").latest()):
        parser.error(f"no adapter in {options.start}: run `python examples/sft.py` first")

    tokenizer = AutoTokenizer.from_pretrained(options.start / "tokenizer")
    start = PeftModel.from_pretrained(sft.build_model(tokenizer), adapter.path)
    lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")  # without dropout
    # Merged: without the new adapter it is the model of sft.py, not the one below that.
    model = get_peft_model(start.merge_and_unload(), lora).train()

    both = preferences(list(sft.conversations(options.modules)))
    encoded = [(sft.encode(tokenizer, a), sft.encode(tokenizer, b)) for a, b in both]
    pairs = usable(encoded, options.max_tokens)
    for_training = [each for number, each in enumerate(pairs) if number % 10]
    form: Any = {"batch_size": options.batch_size, "collate_fn": collate}
    train_loader = loader(for_training, training=True, **form)
    val_loader = loader(pairs[::10], training=False, **form)

    often = Events.STEP_COMPLETED(every=options.every, last=True)
    engine = build(model, options.beta, options.accumulate).add(
        Validate(val_loader, when=often),
        Export(options.directory / "adapter", pretrained=True, when=often),
        Checkpoint(options.directory, when=often, resume=True),
        JSONLines(options.directory / "rows.jsonl", when=often),
        StopOnSignal(),
        ProgressBar("margin", "val/accuracy"),
    )
    state = engine.run(train_loader, max_steps=options.max_steps, max_batches=options.max_batches)
    sft.say(f"{state.step} steps: {float(state.metrics['val/accuracy']):.1%} of pairs are right")
    question = "What does textwrap.dedent do?"
    with model.disable_adapter():
        sft.say(f"{question} {sft.answer(model, tokenizer, question)}")
    sft.say(f"{question} {sft.answer(model, tokenizer, question)}")
    return state


if __name__ == "__main__":
    with ranks.process_group():  # of torchrun, Slurm or MPI; alone, nothing happens
        main()
