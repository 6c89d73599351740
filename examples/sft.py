"""Supervised fine-tuning: a chat model learns to answer, from the loss on its answers alone.

The conversations are about Python's standard library: what does a function do, and what does it
take? Whole conversations are packed into rows of one length. The loss of a step is the mean over
the tokens of all its answers. An adapter is trained, saved and exported; the model below it stays
as it is. All of it takes fifteen seconds of a processor.

    python examples/sft.py
    torchrun --nproc-per-node=2 examples/sft.py
"""

import argparse
import ast
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from camshaft import Engine, Events, Packed, State, count_next_tokens, loader, ranks, supervised
from camshaft.handlers import (
    Checkpoint,
    ClipGradNorm,
    Export,
    JSONLines,
    LRSchedule,
    ProgressBar,
    StopOnSignal,
    Validate,
)
from camshaft.handlers.schedules import cosine, warmup

Messages = list[dict[str, str]]
TEMPLATE = """\
{%- for message in messages -%}
    {{- '<|' + message.role + '|>' -}}
    {%- if message.role == 'assistant' -%}
        {%- generation -%}{{- message.content + '<|end|>' -}}{%- endgeneration -%}
    {%- else -%}
        {{- message.content + '<|end|>' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"""
"""`generation` marks what the assistant says: the loss is on that, and on the end of it."""


def conversations(modules: str = "*.py") -> Iterator[Messages]:
    """Two questions and answers about each function of the standard library's modules."""
    for path in sorted(Path(os.__file__).parent.glob(modules)):
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
        classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
        scopes = {path.stem: tree.body} | {
            f"{path.stem}.{each.name}": each.body for each in classes
        }
        for scope, body in scopes.items():
            for node in body:
                if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
                    taken = ", ".join(each.arg for each in node.args.args)
                    yield [
                        {"role": "user", "content": f"What does {scope}.{node.name} do?"},
                        {"role": "assistant", "content": " ".join(text.split())},
                        {"role": "user", "content": "What does it take?"},
                        {"role": "assistant", "content": taken or "Nothing."},
                    ]


def build_tokenizer(chats: Iterable[Messages]) -> Any:
    """In the place of AutoTokenizer.from_pretrained: pieces of words, learned in a second."""
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((each["content"] for chat in chats for each in chat), trainer)
    make: Any = PreTrainedTokenizerFast
    special = {"pad_token": "<|pad|>", "eos_token": "<|end|>"}
    return make(tokenizer_object=tokenizer, chat_template=TEMPLATE, **special)


def build_model(tokenizer: Any) -> LlamaForCausalLM:
    """In the place of AutoModelForCausalLM.from_pretrained: the same small model each time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def encode(tokenizer: Any, messages: Messages) -> dict[str, list[int]]:
    """The tokens of a conversation, and labels that are -100 but for those of the answers."""
    made = tokenizer.apply_chat_template(
        messages, return_dict=True, return_assistant_tokens_mask=True
    )
    pairs = zip(made["input_ids"], made["assistant_masks"], strict=True)
    labels = [token if is_answer else -100 for token, is_answer in pairs]
    return {"input_ids": made["input_ids"], "labels": labels}


def usable(samples: Sequence[dict[str, list[int]]], max_tokens: int) -> list[dict[str, list[int]]]:
    """The samples that have an answer and fit into a row, whole; says how many do not."""
    answered = [each for each in samples if any(label != -100 for label in each["labels"])]
    kept = [each for each in answered if len(each["input_ids"]) <= max_tokens]
    say(
        f"{len(samples)} conversations: left out are {len(samples) - len(answered)} without an "
        f"answer, and {len(answered) - len(kept)} of more than {max_tokens} tokens"
    )
    return kept


@ranks.rank_zero_only
def say(text: str) -> None:
    print(text)


def build(model: Any, accumulate: int = 1) -> Engine[Any, Any]:
    """The engine that trains what needs a gradient: the adapter."""
    model.config.use_cache = False  # with one, the conversations of a row would see each other
    model = ranks.prepare(model)
    learned = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=1e-2, weight_decay=0.0)
    # The model computes its loss, a mean over the labels that are not -100: that is the weight.
    engine = supervised(model, optimizer, weight=count_next_tokens, accumulate=accumulate)
    return engine.add(ClipGradNorm(1.0), LRSchedule(warmup(0.1).then(cosine(final=0.1))))


def answer(model: Any, tokenizer: Any, question: str) -> str:
    """What the model says, by its most probable tokens."""
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
    ).to(model.device)
    settings = {"do_sample": False, "repetition_penalty": 1.3, "use_cache": True}
    made = model.generate(**asked, max_new_tokens=60, **settings)
    return str(tokenizer.decode(made[0, asked["input_ids"].shape[1] :], skip_special_tokens=True))


def main(arguments: Sequence[str] | None = None) -> State[Any, Any]:
    """Train the adapter, or carry on, and ask the model."""
    parser = argparse.ArgumentParser(description="Supervised fine-tuning on conversations.")
    parser.add_argument("--directory", type=Path, default=Path("runs/sft"))
    parser.add_argument("--max-steps", type=int, default=100)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--every", type=int, default=20, help="steps between two saves")
    parser.add_argument("--batch-size", type=int, default=8, help="rows, over all ranks")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=128, help="of a row")
    parser.add_argument("--modules", default="*.py", help="of the standard library")
    options = parser.parse_args(arguments)

    chats = list(conversations(options.modules))
    tokenizer = build_tokenizer(chats)
    ranks.rank_zero_only(tokenizer.save_pretrained)(options.directory / "tokenizer")
    samples = usable([encode(tokenizer, each) for each in chats], options.max_tokens)
    for_training = [each for number, each in enumerate(samples) if number % 10]
    train_set = Packed(for_training, max_tokens=options.max_tokens)
    val_set = Packed(samples[::10], max_tokens=options.max_tokens)
    train_loader = loader(train_set, options.batch_size, training=True)
    val_loader = loader(val_set, options.batch_size, training=False)

    lora = LoraConfig(
        r=8,
        lora_alpha=16,
        target_modules="all-linear",
        modules_to_save=["embed_tokens", "lm_head"],  # the tokens of the chat are new to the model
    )
    model = get_peft_model(build_model(tokenizer), lora)
    often = Events.STEP_COMPLETED(every=options.every, last=True)
    engine = build(model, options.accumulate).add(
        Validate(val_loader, when=often),
        Export(options.directory / "adapter", pretrained=True, when=often),
        Checkpoint(options.directory, when=often, resume=True),
        JSONLines(options.directory / "rows.jsonl", when=often),
        StopOnSignal(),
        ProgressBar("loss", "val/loss"),
    )
    state = engine.run(train_loader, max_steps=options.max_steps, max_batches=options.max_batches)
    if state.is_interrupted:  # the script goes on when it is started again
        return state
    say(f"{state.step} steps: {float(state.metrics['val/loss']):.4f} nats a token of an answer")
    question = "What does textwrap.dedent do?"
    say(f"{question} {answer(model, tokenizer, question)}")
    return state


if __name__ == "__main__":
    with ranks.process_group():  # of torchrun, Slurm or MPI; alone, nothing happens
        main()
