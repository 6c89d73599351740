"""What a save of about 400 MB costs: seconds the training waits, and seconds until it is durable.

A second table is of 400 MB that are frozen, below 4 MB that are trained; it also has the bytes that
a save after the first adds to what is on the disk.

Each round starts a fresh process for every subject, one after the other in random order. It saves
several times, always to a new place; the first save does not count, since it makes the memory that
later ones use again. Times are wall time, because the disk's is what is asked for.

With `--loop` it prints what a save costs a training loop whose step is longer than a copy.
"""

import argparse
import gc
import itertools
import json
import logging
import os
import platform
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import page

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "project" / "benchmarks.md"
NAMES = {
    "copy": "a plain copy into reused memory",
    "write": "a plain write and fsync",
    "camshaft": "**Camshaft**",
    "camshaft_foreground": "**Camshaft**, `background=False`",
    "torch_save": "`torch.save`",
    "ignite": "pytorch-ignite, `Checkpoint` and `DiskSaver`",
    "lightning": "Lightning, `save_checkpoint`",
    "dcp": "`torch.distributed.checkpoint.save`",
    "dcp_async": "`async_save`, cached staging",
}


PEERS = ["camshaft", "torch_save", "ignite", "lightning"]
Taken = dict[str, list[tuple[float, ...]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round, nothing written")
    parser.add_argument("--directory", help="on the disk to measure; a temporary one otherwise")
    parser.add_argument("--subject", choices=NAMES, help="measure one, in this process")
    parser.add_argument("--frozen", action="store_true", help="measure it with a frozen backbone")
    parser.add_argument("--loop", action="store_true", help="measure what a loop loses to a save")
    options = parser.parse_args()
    if options.loop:
        with TemporaryDirectory(dir=options.directory) as directory:
            print(lost_by_loop(Path(directory), options.saves))
        return
    if options.subject:
        with TemporaryDirectory(dir=options.directory) as directory:
            place = Path(directory)
            print(json.dumps(measured(options.subject, place, options.saves, options.frozen)))
        return
    whole: Taken = {name: [] for name in NAMES}
    parts: Taken = {name: [] for name in PEERS}
    rounds, saves = (1, 2) if options.quick else (options.rounds, options.saves)
    for number in range(rounds):
        print(f"checkpoints, round {number + 1} of {rounds}", file=sys.stderr)
        turns = [*((whole, name) for name in whole), *((parts, name) for name in parts)]
        for taken, subject in random.sample(turns, len(turns)):
            command = [sys.executable, __file__, "--subject", subject, "--saves", str(saves)]
            command += ["--directory", options.directory] if options.directory else []
            command += ["--frozen"] if taken is parts else []
            environment = os.environ | {"PYTHONWARNINGS": "ignore"}
            output = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
            taken[subject] += json.loads(output.stdout.splitlines()[-1])
    for name, text in {
        "checkpoints": figures(whole, rounds, saves),
        "frozen": figures_of_frozen(parts),
    }.items():
        print(text)
        if not options.quick:
            page.insert(PAGE, text, name)


def figures(taken: Taken, rounds: int, saves: int) -> str:
    """The table, and under which circumstances it was taken."""
    typical = medians(taken)
    rows = [
        (
            NAMES[name],
            "-" if name == "write" else f"{blocked:.3f}",
            "-" if name == "write" else f"{blocked / typical['copy'][0]:.2f}",
            "-" if name == "copy" else f"{durable:.2f}",
            "-" if name == "copy" else f"{typical['write'][1] / durable:.0%}",
        )
        for name, (blocked, durable, _) in typical.items()
    ]
    head = ("", "training waits, s", "copy: 1", "until durable, s", "speed of a plain write")
    how = (
        f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()}), Python "
        f"{platform.python_version()}, {page.versions('torch', 'pytorch-ignite', 'lightning')}; "
        f"medians of {rounds} rounds of {saves} saves, of which the first does not count."
    )
    return f"{how}\n\n{page.table(head, rows)}"


def figures_of_frozen(taken: Taken) -> str:
    """The table of saves of a model of which most is frozen."""
    rows = [
        (NAMES[name], f"{size / 1e6:.1f}", f"{blocked:.3f}", f"{durable:.2f}")
        for name, (blocked, durable, size) in medians(taken).items()
    ]
    return page.table(("", "MB a save adds", "training waits, s", "until durable, s"), rows)


def medians(taken: Taken) -> dict[str, list[float]]:
    return {name: [median(each) for each in zip(*taken[name], strict=True)] for name in taken}


def measured(
    subject: str, directory: Path, saves: int, frozen: bool
) -> list[tuple[float, float, float]]:
    """Of each save but the first: seconds blocked, seconds until durable, bytes on the disk."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(97 if frozen else 32)))
    if frozen:
        model[:-1].requires_grad_(False)
    optimizer = torch.optim.Adam(each for each in model.parameters() if each.requires_grad)
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    gc.collect()
    os.sync()
    times = list(globals()[subject](model, optimizer, directory, saves))[1:]
    added = bytes_added(directory, saves)
    return [(blocked, durable, added) for blocked, durable in times]


def lost_by_loop(directory: Path, saves: int, gap: int = 16) -> str:
    """What a real step loses in the iteration that saves and the next one, and until it is durable.

    In copies of the same bytes, taken at the end; an iteration without a save is the median of the
    last quarter before each save. The first save does not count.
    """
    import torch

    from camshaft import Engine, Events, Update
    from camshaft.handlers import Checkpoint

    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(32)))
    optimizer = torch.optim.Adam(model.parameters())
    update, inputs = Update(optimizer), torch.randn(64, 1024)
    handler = Checkpoint(directory / "run", when=Events.ITERATION_COMPLETED(every=gap))
    engine = Engine(
        lambda state, _: update(state, model(inputs).square().mean()),
        objects={"model": model, "optimizer": optimizer},
    ).add(update, handler)
    began, durable = list[float](), list[int]()

    def note(state: Any) -> None:
        began.append(perf_counter())
        task = handler.recorder(state).writer.under_way
        if state.iteration > gap and (task is None or task.done()):
            durable.append(state.iteration)

    engine.on(Events.ITERATION_STARTED)(note)
    engine.run(range((saves + 1) * gap), max_epochs=1)
    copied = median(seconds for seconds, _ in [*copy(model, optimizer, directory, 9)][2:])
    took = {n: end - begin for n, (begin, end) in enumerate(itertools.pairwise(began), 1)}
    plain = median(took[n] for n in took if n > gap and n % gap >= gap * 3 // 4)
    two, whole = list[float](), list[float]()
    for first in range(2 * gap, (saves + 1) * gap, gap):
        last = next(n for n in durable if n > first)
        two.append((took[first] + took[first + 1] - 2 * plain) / copied)
        whole.append(sum(took[n] - plain for n in range(first, last)) / copied)
    return (
        f"a copy {copied:.3f} s, a step {plain:.3f} s; copies lost: {median(two):.2f} in the "
        f"iteration that saves and the next, {median(whole):.2f} until durable"
    )


def bytes_added(directory: Path, saves: int) -> float:
    """What each save after the first has added to the disk: each holds the same files."""
    found = [path.stat() for path in directory.rglob("*") if path.is_file()]
    apparent = sum(each.st_size for each in found)
    once = sum({each.st_ino: each.st_size for each in found}.values())
    return (once - apparent / saves) / (saves - 1)


def tensors_of(model: Any, optimizer: Any) -> list[Any]:
    moments = [each for state in optimizer.state.values() for each in state.values()]
    return [*(each.detach() for each in model.state_dict().values()), *moments]


def copy(model: Any, optimizer: Any, directory: Path, saves: int) -> Iterator[tuple[float, float]]:
    tensors = tensors_of(model, optimizer)
    buffers = [each.clone() for each in tensors]
    for _ in range(saves):
        began = perf_counter()
        for buffer, tensor in zip(buffers, tensors, strict=True):
            buffer.copy_(tensor)
        yield perf_counter() - began, 0.0


def write(model: Any, optimizer: Any, directory: Path, saves: int) -> Iterator[tuple[float, float]]:
    import torch

    parts = [each.reshape(-1).view(torch.uint8) for each in tensors_of(model, optimizer)]
    content = memoryview(torch.cat(parts).numpy())
    for number in range(saves):
        began = perf_counter()
        with (directory / str(number)).open("wb", buffering=0) as file:
            for begin in range(0, len(content), 2**24):
                file.write(content[begin : begin + 2**24])
            os.fsync(file.fileno())
        yield 0.0, perf_counter() - began


def camshaft(
    model: Any, optimizer: Any, directory: Path, saves: int, background: bool = True
) -> Iterator[tuple[float, float]]:
    from camshaft import Engine, Events, Stage
    from camshaft.handlers import Checkpoint, latest

    handler = Checkpoint(
        directory / "run",
        when=Events.ITERATION_COMPLETED,
        keep=latest(saves),
        background=background,
    )
    began, blocked, durable = [], [], []

    class Note(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("saved"):
                durable.append(perf_counter() - began[-1])

    logging.getLogger("camshaft").setLevel(logging.INFO)
    logging.getLogger("camshaft").addHandler(Note())
    trained = [own for own in model.parameters() if own.requires_grad]
    moments = [each for state in optimizer.state.values() for each in state.values()]

    def change(state: Any, batch: int) -> None:  # what is as it was is not written again
        for each in (*trained, *moments):
            each.data.add_(1)

    engine = Engine(change, objects={"model": model, "optimizer": optimizer})
    engine.on(Events.SAVING, stage=Stage.MEASURE)(lambda state: began.append(perf_counter()))
    engine.add(handler)
    engine.on(Events.SAVING, stage=Stage.REPORT)(
        lambda state: blocked.append(perf_counter() - began[-1])
    )
    engine.on(Events.ITERATION_STARTED)(handler.wait)
    engine.run(range(saves), max_epochs=1)
    yield from zip(blocked, durable, strict=True)


def camshaft_foreground(*arguments: Any) -> Iterator[tuple[float, float]]:
    return camshaft(*arguments, background=False)


def saved_by(save: Callable[[Path], object], place: Path) -> tuple[float, float]:
    """Call a function that writes to `place`, then do what makes it durable."""
    began = perf_counter()
    save(place)
    blocked = perf_counter() - began
    paths = [place, *place.rglob("*")] if place.is_dir() else [place]
    for path in [*paths, place.parent]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return blocked, perf_counter() - began


def states(model: Any, optimizer: Any) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def torch_save(
    model: Any, optimizer: Any, directory: Path, saves: int
) -> Iterator[tuple[float, float]]:
    import torch

    for number in range(saves):
        yield saved_by(
            lambda place: torch.save(states(model, optimizer), place), directory / f"{number}.pt"
        )


def ignite(
    model: Any, optimizer: Any, directory: Path, saves: int
) -> Iterator[tuple[float, float]]:
    from ignite.engine import Engine
    from ignite.handlers import Checkpoint, DiskSaver

    engine = Engine(lambda engine, batch: None)
    for number in range(saves):
        saver = DiskSaver(str(directory / str(number)), create_dir=True)
        handler = Checkpoint({"model": model, "optimizer": optimizer}, saver, n_saved=1)
        yield saved_by(lambda place, handler=handler: handler(engine), directory / str(number))


def lightning(
    model: Any, optimizer: Any, directory: Path, saves: int
) -> Iterator[tuple[float, float]]:
    import torch
    from lightning.pytorch import LightningModule, Trainer

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> Any:
            return self.model(batch).sum()

        def configure_optimizers(self) -> Any:
            return optimizer

    trainer = Trainer(
        max_steps=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(1, 1024), num_workers=0))
    for number in range(saves):
        yield saved_by(trainer.save_checkpoint, directory / f"{number}.ckpt")


def dcp(model: Any, optimizer: Any, directory: Path, saves: int) -> Iterator[tuple[float, float]]:
    from torch.distributed.checkpoint import save

    for number in range(saves):
        yield saved_by(
            lambda place: save(states(model, optimizer), checkpoint_id=place),
            directory / str(number),
        )


def dcp_async(
    model: Any, optimizer: Any, directory: Path, saves: int
) -> Iterator[tuple[float, float]]:
    import torch.distributed as distributed
    from torch.distributed.checkpoint import async_save
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    # Without a GPU there is no pinned memory; the stager keeps its memory from save to save.
    stager = DefaultStager(StagingOptions(False, False, False, False))
    store = f"file://{directory}/store"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    for number in range(saves):
        place, began = directory / str(number), perf_counter()
        writing: Any = async_save(
            states(model, optimizer), checkpoint_id=place, async_stager=stager
        )
        blocked = perf_counter() - began
        writing.result()
        yield blocked, perf_counter() - began
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
