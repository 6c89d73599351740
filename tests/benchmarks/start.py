"""Seconds from `python script.py` to the end of the first step, fresh and from 400 MB.

Each round starts a fresh process for every subject, one after the other in random order. A process
writes down what time it is, and how much processor time it has used, after each part of its start.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import page

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "project" / "benchmarks.md"
NAMES = {
    "raw": "a loop by hand, `torch.load`",
    "camshaft": "**Camshaft**",
    "ignite": "pytorch-ignite, `Checkpoint.load_objects`",
    "lightning": "Lightning, `ckpt_path=`",
}
PACKAGES = {"ignite": "pytorch-ignite", "lightning": "lightning"}
READ = "read"
"""Not a subject: reads the bytes of Camshaft's checkpoint and does nothing with them."""
CASES = ("fresh", "warm", "cold")
PARTS = ("import torch", "import", "build", "load", "step")
MOST = 0.3

Times = dict[str, tuple[float, float]]
"""By part: the seconds since the process was started, and those of all its threads."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one round, nothing written")
    parser.add_argument("--directory", help="on the disk to measure; a temporary one otherwise")
    parser.add_argument("--subjects", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--subject", choices=[*NAMES, READ], help="measure one, in this process")
    parser.add_argument("--case", choices=[*CASES, "save"])
    parser.add_argument("--began", type=float, help="when the process was started")
    options = parser.parse_args()
    if options.subject:
        warnings.simplefilter("ignore")
        globals()[options.subject](Path(options.directory), options.case, partial(note, options))
        return
    with TemporaryDirectory(dir=options.directory) as directory:
        rounds = 1 if options.quick else options.rounds
        text = figures(taken(options.subjects, Path(directory), rounds))
    print(text)
    if not options.quick and len(options.subjects) == len(NAMES):
        page.insert(PAGE, text, "start")


def taken(subjects: list[str], directory: Path, rounds: int) -> dict[str, list[Times]]:
    """What each process of each round has noted."""
    for subject in subjects:
        started(subject, directory / subject, "save")
    os.sync()
    found: dict[str, list[Times]] = {}
    turns = [(subject, case) for case in CASES for subject in (*subjects, READ)]
    turns.remove((READ, "fresh"))
    for number in range(rounds):
        print(f"start, round {number + 1} of {rounds}", file=sys.stderr)
        for subject, case in random.sample(turns, len(turns)):
            place = directory / ("camshaft" if subject == READ else subject)
            prepare(place, case)
            found.setdefault(f"{subject} {case}", []).append(started(subject, place, case))
    return found


def prepare(place: Path, case: str) -> None:
    """Have the files of a checkpoint in the system's memory, or out of it."""
    for file in filter(Path.is_file, place.rglob("*")):
        if case == "cold":
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        else:
            file.read_bytes()


def started(subject: str, place: Path, case: str) -> Times:
    command = [sys.executable, __file__, "--subject", subject, "--directory", str(place)]
    command += ["--case", case, "--began", str(perf_counter())]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    output = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True).stdout
    return {part: times for line in output.splitlines() for part, times in [json.loads(line)]}


def note(options: argparse.Namespace, part: str) -> None:
    """Tell what time it is after this part; after the last one, end the process at once."""
    times = (perf_counter() - options.began, process_time())
    print(json.dumps((part, times)), flush=True)
    if part == PARTS[-1] and options.case != "save":
        os._exit(0)


def figures(found: dict[str, list[Times]]) -> str:
    """The tables, and under which circumstances they were taken."""

    def total(name: str, kind: int = 0) -> float:
        begins = (times.get(PARTS[0], (0.0, 0.0))[kind] for times in found[name])
        ends = (times[PARTS[-1]][kind] for times in found[name])
        return median(end - begin for begin, end in zip(begins, ends, strict=True))

    def over(subject: str, case: str, kind: int = 0) -> float:
        read = 0.0 if case == "fresh" else total(f"{READ} {case}", kind)
        return total(f"{subject} {case}", kind) - total("raw fresh", kind) - read

    packages = [PACKAGES[name] for name in PACKAGES if f"{name} fresh" in found]
    how = (
        f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()}), Python "
        f"{platform.python_version()}, {page.versions('torch', *packages)}; "
        f"medians of {len(found['raw fresh'])} rounds. After `import torch`, the loop "
        f"by hand takes {total('raw fresh'):.2f} s fresh, {total('raw fresh', 1):.2f} s of "
        f"processors; the plain read takes {total(f'{READ} warm'):.2f} s warm and "
        f"{total(f'{READ} cold'):.2f} s cold."
    )
    rows = [
        (NAMES[subject], *(f"{over(subject, case, kind):.2f}" for case in CASES for kind in (0, 1)))
        for subject in NAMES
        if f"{subject} fresh" in found
    ]
    head = ("over the own loop and the read, s", "fresh", "CPU", "warm", "CPU", "cold", "CPU")
    worst = max(over("camshaft", case) for case in CASES)
    goal = f"Goal: at most {MOST:.2f} s; figure: {worst:.2f}; reached: "
    goal += "yes." if worst <= MOST else "no."
    return "\n\n".join((how, page.table(head, rows), goal, of_parts(found)))


def of_parts(found: dict[str, list[Times]]) -> str:
    """Where the time goes."""
    rows = []
    for name in ("raw fresh", "raw warm", "raw cold", *(f"camshaft {case}" for case in CASES)):
        ends = [median(times[part][0] for times in found[name]) for part in PARTS]
        parts = (b - a for a, b in zip([0.0, *ends[:-1]], ends, strict=True))
        subject, case = name.split()
        rows.append((f"{NAMES[subject]}, {case}", *(f"{each:.3f}" for each in parts)))
    head = ("s", "Python and `import torch`", "import", "build", "find, read, load", "first step")
    return page.table(head, rows)


def built() -> tuple[Any, Any, Any]:
    """A model of 32 layers, its optimizer, and a loader of four batches."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(32)))
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(32, 1024), torch.randn(32, 1024))
    return model, optimizer, torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)


def read(directory: Path, case: str, note: Callable[[str], None]) -> None:
    """The seconds count from here: this process is asked for what the disk can do."""
    buffer, began, used = bytearray(2**24), perf_counter(), process_time()
    for path in filter(Path.is_file, directory.rglob("*")):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    print(json.dumps((PARTS[-1], (perf_counter() - began, process_time() - used))))


def raw(directory: Path, case: str, note: Callable[[str], None]) -> None:
    import torch

    note("import torch")
    note("import")
    model, optimizer, loader = built()
    objects = {"model": model, "optimizer": optimizer}
    note("build")
    if case in ("warm", "cold"):
        saved = torch.load(directory / "saved.pt", weights_only=True)
        for name, each in objects.items():
            each.load_state_dict(saved[name])
    note("load")
    for inputs, targets in loader:
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        note("step")
        optimizer.zero_grad()
    directory.mkdir()
    saved = {name: each.state_dict() for name, each in objects.items()}
    torch.save(saved, directory / "saved.pt")


def camshaft(directory: Path, case: str, note: Callable[[str], None]) -> None:
    import torch

    note("import torch")
    from camshaft import Events, supervised
    from camshaft.handlers import Checkpoint

    note("import")
    model, optimizer, loader = built()
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    when = Events.ITERATION_COMPLETED(at=2)
    place = directory / "new" if case == "fresh" else directory
    engine.add(Checkpoint(place, when=when, resume=case != "fresh"))
    engine.on(Events.STARTED)(lambda state: note("load"))
    engine.on(Events.ITERATION_COMPLETED)(lambda state: note("step"))
    note("build")
    engine.run(loader, max_epochs=1)


def ignite(directory: Path, case: str, note: Callable[[str], None]) -> None:
    import torch

    note("import torch")
    from ignite.engine import Events, create_supervised_trainer
    from ignite.handlers import Checkpoint, DiskSaver

    note("import")
    model, optimizer, loader = built()
    trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
    objects = {"model": model, "optimizer": optimizer, "trainer": trainer}
    note("build")
    if case in ("warm", "cold"):
        (file,) = directory.glob("*.pt")
        Checkpoint.load_objects(objects, torch.load(file, weights_only=True))
    note("load")
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: note("step"))
    trainer.run(loader, max_epochs=1 if case == "save" else 2)
    saver = DiskSaver(str(directory), create_dir=True)
    Checkpoint(objects, saver, n_saved=1)(trainer)


def lightning(directory: Path, case: str, note: Callable[[str], None]) -> None:
    import logging

    import torch

    note("import torch")
    from lightning.pytorch import LightningModule, Trainer

    note("import")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    model, optimizer, loader = built()

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> Any:
            return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return optimizer

        def on_train_start(self) -> None:
            note("load")

        def on_train_batch_end(self, *arguments: Any) -> None:
            note("step")

    trainer = Trainer(
        max_epochs=1 if case == "save" else 2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    note("build")
    file = directory / "saved.ckpt"
    trainer.fit(Module(), loader, ckpt_path=file if case in ("warm", "cold") else None)
    trainer.save_checkpoint(file)


if __name__ == "__main__":
    main()
