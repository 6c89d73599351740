"""Try a library beside Camshaft: a run that is killed and started again against one of no kill.

A file `crossing_<library>.py` holds scripts as users write them, each under a decorator that says
what happens: `exact` or `told`. It becomes a test, and a row of docs/project/works-with.md:

    @exact("litdata", "Data", "engine.run(StreamingDataLoader(data, batch_size=4))")
    def test_streaming(folder):
        "A StreamingDataLoader with two workers."
        ...
        return Trial(engine, loader)

The run of no kill and those that are killed are forked from one interpreter, and those that resume
from another one: the libraries are imported twice, and no address or hash lives on.
"""

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import logging
import os
import random
import re
import select
import signal
import subprocess
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

KINDS = (
    "Data",
    "Augmentations",
    "Optimizers",
    "Schedules",
    "Averages",
    "Metrics",
    "Models",
    "Logs",
)
EVERY = 3
"""Iterations between saves. Besides, each epoch ends with one."""


@dataclass
class Trial:
    """What a script has made: the engine, which gets a `Checkpoint`, and what to run it on.

    `by_hand` trains the same by a loop of its own and returns the objects of `engine.objects` that
    it has trained, by name. `result` reads, at the end of a run, what the library has kept of it.
    """

    engine: Any
    data: Any
    max_epochs: int = 3
    epoch_length: int | None = None
    by_hand: Callable[[], Mapping[str, Any]] | None = None
    result: Callable[[], Any] | None = None


def exact(library, kind, line, *, warns=None, note="", fresh=False):
    """The script below resumes to the last bit, and no warning is said but one that `warns`.

    `library` is the name of a distribution, `line` what a user writes, and `note` a sentence for
    the page. `warns` and `match` are regular expressions. `fresh` starts an interpreter for each
    run, for what does not survive a fork.
    """
    return functools.partial(_row, "exact", library, kind, line, warns, note, fresh)


def told(library, kind, line, *, match, note="", fresh=False, silent=()):
    """The script below gets an error or a warning that matches; `line` is what to write instead.

    After each kill there is a word of what differs, but at the places in `silent`, which are in
    `note`.
    """
    return functools.partial(_row, "told", library, kind, line, match, note, fresh, silent=silent)


def _row(verdict, library, kind, line, match, note, fresh, script, silent=()):
    assert kind in KINDS, f"{kind} is none of {KINDS}"
    assert note or not silent

    def test(tmp_path):
        outcome = try_out(Path(inspect.getsourcefile(script)), script.__name__, tmp_path, fresh)
        matching = [word for word in outcome.words if match and re.search(match, word)]
        if verdict == "exact":
            assert [word for word in outcome.words if word not in matching] == []
            assert outcome.differs == []
            assert bool(match) == bool(matching), f"no word matches {match}"
        else:
            assert outcome.words, f"without a word: {outcome.differs or 'all is the same'}"
            assert matching, f"no word matches {match}: {outcome.words}"
            assert {each.partition(":")[0] for each in outcome.silent} == {*silent}, outcome.silent
        if results := os.environ.get("CAMSHAFT_CROSSINGS"):
            row = {
                **{"library": library, "version": importlib.metadata.version(library)},
                **{"kind": kind, "what": inspect.getdoc(script), "verdict": verdict},
                **{"line": line, "note": note, "words": matching[:1]},
            }
            with open(results, "a") as file:
                file.write(json.dumps(row) + "\n")

    test.__name__, test.__doc__, test.script = script.__name__, script.__doc__, script
    return test


@dataclass
class Outcome:
    """What differs from the run of no kill, and what Camshaft or the library said."""

    differs: list
    words: list

    @property
    def silent(self):
        """What differs after a kill although no word was said of it."""
        heard = {word.partition(":")[0] for word in self.words}
        is_known = any(not word.startswith("killed ") for word in self.words)
        after = [] if is_known else [each for each in self.differs if each.startswith("killed ")]
        return [each for each in after if each.partition(":")[0] not in heard]


def try_out(file, name, folder, fresh):
    """Run the script, kill it at three places, start it again, and compare."""
    wheres = ["in mid-epoch", "after an epoch's end", "in epoch 2"]
    _start(file, name, folder, fresh, ["whole", *wheres])
    whole = Record(folder, "whole")
    outcome = Outcome([], whole.words)
    if whole.end is None:  # an error of the run of no kill is a word, too
        return outcome
    kills = places(whole)
    _start(file, name, folder, fresh, [f"{where} again" for where in wheres])
    for where, at in kills.items():
        outcome.words += Record(folder, where).words
        run = Record(folder, f"{where} again")
        outcome.words += [f"killed {where}: {word}" for word in run.words]
        if run.end is None:
            continue
        assert 1 < min(run.rows) <= at, f"killed {where}, it began at {min(run.rows)}"
        outcome.differs += [f"killed {where}: {each}" for each in run.differs_from(whole)]
    by_hand = [name for name, one in whole.by_hand.items() if one != whole.end[name]]
    outcome.differs += [f"{name} by hand" for name in by_hand]
    return outcome


def places(whole):
    """The iterations after which a run is killed."""
    length = max(n for n, row in whole.rows.items() if row["epoch"] == 1)
    assert length >= 2 * EVERY, f"{length} batches an epoch: no place to be killed at"
    assert length % EVERY, f"an epoch's end is a save of its own: {length} batches"
    return {
        "in mid-epoch": EVERY + 2,
        "after an epoch's end": length + 1,
        "in epoch 2": length - length % EVERY + 2 * EVERY + 1,
    }


class Record:
    """The lines that one run has written: rows by iteration, the end, and words."""

    def __init__(self, folder, job):
        if not (path := folder / f"{job}.jsonl").exists():
            output = (folder / "output.txt").read_text(errors="replace")
            raise RuntimeError(f"{job}: nothing was recorded\n{output[-4000:]}")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.rows = {}
        for line in lines:
            if "iteration" in line:
                self.rows.setdefault(line["iteration"], {}).update(line)
        self.words = [line["word"] for line in lines if "word" in line]
        self.end = next((line["end"] for line in lines if "end" in line), None)
        self.by_hand = next((line["by hand"] for line in lines if "by hand" in line), {})
        is_killed = job != "whole" and not job.endswith("again")
        if not (self.end or self.words or is_killed):  # as by a signal in the library
            raise RuntimeError(f"{job}: it ended without an end and without a word")

    def differs_from(self, whole):
        """What this run has otherwise, the first place of each kind."""
        later = {n: row for n, row in whole.rows.items() if n >= min(self.rows)}
        for what in ("batch", "metrics"):
            ours, theirs = (
                {n: row.get(what) for n, row in rows.items()} for rows in (self.rows, later)
            )
            if ours != theirs:
                places = [n for n in sorted({*ours, *theirs}) if ours.get(n) != theirs.get(n)]
                yield f"{what} from iteration {places[0]} on"
        for name in sorted({*self.end, *whole.end}):
            if self.end.get(name) != whole.end.get(name):
                yield f"{name} at the end"


def _declare_operators():
    """Let PyPI's torchvision, built for a GPU, import beside a torch for CPUs.

    Its own operators do not load then, and it registers shapes for two of them.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        is_for_gpus = "+" not in importlib.metadata.version("torchvision")
        is_declared = hasattr(torch.ops.torchvision, "nms")
        if torch.version.cuda is None and is_for_gpus and not is_declared:
            library = torch.library.Library("torchvision", "FRAGMENT")
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            return library


TORCHVISION = _declare_operators()


# --- In the processes -------------------------------------------------------------------------


def _start(file, name, folder, fresh, jobs):
    """Do the jobs, forked from one interpreter or each in its own."""
    again = jobs[0].endswith("again")
    for some in [[job] for job in jobs] if fresh else [jobs]:
        interpreter = _interpreter.__wrapped__(again) if fresh else _interpreter(again)
        request = json.dumps([f"{file}", name, f"{folder}", fresh, some])
        print(request, file=interpreter.stdin, flush=True)
        is_done, *_ = select.select([interpreter.stdout], [], [], 600)
        if fresh or not is_done:
            os.killpg(interpreter.pid, signal.SIGKILL)
            interpreter.communicate()
        if not is_done:
            _interpreter.cache_clear()
            raise TimeoutError(f"{name}, {some}: not done after 600 seconds")
        if not fresh:
            interpreter.stdout.readline()


@functools.cache
def _interpreter(again):
    """A process that has imported Camshaft; that of the resumed runs has other hashes."""
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": here, "OMP_NUM_THREADS": "1"}
    environment["PYTHONHASHSEED"] = str(1 + again)
    return subprocess.Popen(
        [sys.executable, "-c", "import crossing; crossing.main()"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def main():
    """Do what each line of standard input asks for, and answer by an empty line."""
    import camshaft.handlers  # noqa: F401

    for line in sys.stdin:
        file, name, folder, fresh, jobs = json.loads(line)
        answer = os.dup(1)
        if fresh or (process := os.fork()) == 0:
            _do(Path(file), name, Path(folder), fresh, jobs)
            if not fresh:
                os._exit(0)
        else:
            os.waitpid(process, 0)
        os.write(answer, b"\n")
        os.close(answer)


def _do(file, name, folder, fresh, jobs):
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number, stream in enumerate([os.open(os.devnull, os.O_RDONLY), output, output]):
        os.dup2(stream, number)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    script = getattr(module, name).script
    if not fresh:
        importlib.import_module("torch._dynamo")  # as an optimizer's first step does
        _import_ahead(script)
    for job in jobs:
        if job != "whole" and Record(folder, "whole").end is None:
            return
        if fresh:
            _run(script, folder, job)
        elif (process := os.fork()) == 0:
            _run(script, folder, job)
            os._exit(0)
        else:
            os.waitpid(process, 0)


def _import_ahead(script):
    """Import what the script does once, for all that are forked; the script reports errors."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(script)))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            with contextlib.suppress(Exception):
                exec(ast.unparse(node), {})


def _run(script, folder, job):
    """One run, in this process, which may be killed at the end of an iteration."""
    file = os.open(folder / f"{job}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write = lambda **line: os.write(file, (json.dumps(line) + "\n").encode())  # noqa: E731
    words = logging.Handler(logging.WARNING)
    words.emit = lambda record: write(word=record.getMessage())
    logging.getLogger("camshaft").addHandler(words)
    warnings.showwarning = functools.partial(_note_ours, write)
    try:
        _record(script, folder, job, write)
    except Exception as error:
        traceback.print_exc()
        write(word=f"{type(error).__name__}: {error}")


def _note_ours(write, message, *rest, **options):
    """Write down a warning of Camshaft's own; those of libraries are no words on a resume."""
    from camshaft.engine.explain import warn

    frames = (frame for frame, _ in traceback.walk_stack(None))
    if any(frame.f_code is warn.__code__ for frame in frames):
        write(word=f"{message}")


def _record(script, folder, job, write):
    from camshaft import Events
    from camshaft.handlers import Checkpoint
    from camshaft.handlers.loggers import delivery

    delivery.PATIENCE = 100  # trackers on a busy machine
    where, again = job.removesuffix(" again"), job.endswith(" again")
    at = places(Record(folder, "whole"))[where] if where != "whole" else None
    directory = folder / where.replace(" ", "_").replace("'", "")
    directory.mkdir(exist_ok=True)
    os.chdir(directory)
    # A new process has seeds of its own: a script that needs one sets it.
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1 + again)
    trial = script(directory)
    engine = trial.engine

    when = Events.ITERATION_COMPLETED(every=EVERY) | Events.EPOCH_COMPLETED
    engine.add(Checkpoint(directory / "checkpoints", when=when, resume=True, background=False))

    @engine.on(Events.ITERATION_STARTED)
    def note_batch(state):
        # Before the step, which may write into its batch.
        write(iteration=state.iteration, epoch=state.epoch, batch=digest(state.batch))

    @engine.on(Events.ITERATION_COMPLETED)
    def record(state):
        write(iteration=state.iteration, metrics=digest(dict(state.metrics)))
        if state.iteration == at and not again:
            os.kill(os.getpid(), signal.SIGKILL)

    state = engine.run(trial.data, max_epochs=trial.max_epochs, epoch_length=trial.epoch_length)
    end = {name: digest(saved(each)) for name, each in engine.objects.items()}
    end["metrics"] = digest(dict(state.metrics))
    if trial.result:
        end["what the library kept"] = digest(trial.result())
    write(end=end)
    if trial.by_hand and job == "whole":
        write(**{"by hand": {name: digest(saved(one)) for name, one in trial.by_hand().items()}})


def saved(one):
    return one.state_dict() if hasattr(one, "state_dict") else one


def digest(value):
    """A checksum of what a value holds, to the last bit; objects that are no data count by type."""
    checksum = hashlib.sha256()
    for part in _parts(value):
        checksum.update(part if isinstance(part, bytes) else repr(part).encode())
        checksum.update(b";")
    return checksum.hexdigest()[:16]


def _parts(value):
    if hasattr(value, "__tensor_flatten__") and not hasattr(value, "full_tensor"):
        yield from _parts([getattr(value, name) for name in value.__tensor_flatten__()[0]])
    elif isinstance(value, torch.Tensor):
        value = value.detach()
        value = value.full_tensor() if hasattr(value, "full_tensor") else value
        value = value.to_dense() if value.is_sparse else value
        plain = value.dequantize() if value.is_quantized else value
        if plain.dtype == torch.bfloat16:
            plain = plain.float()
        yield str(value.dtype)
        yield from _parts(np.ascontiguousarray(plain.cpu().resolve_conj().resolve_neg().numpy()))
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.shape} {value.dtype}"
        yield value.tobytes()
    elif isinstance(value, Mapping):
        # The order of keys is no state: a setting that the script gives again comes last.
        named = lambda key: repr(key) if isinstance(key, str | int | tuple) else type(key).__name__  # noqa: E731
        for name, each in sorted(
            [(named(key), each) for key, each in value.items()], key=itemgetter(0)
        ):
            yield name
            yield from _parts(each)
    elif isinstance(value, list | tuple | np.ndarray):
        yield len(value)
        for each in value:
            yield from _parts(each)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _parts(getattr(value, field.name, None))
    elif isinstance(value, str | bytes | int | float | complex | bool | None | np.generic):
        yield value
    elif hasattr(value, "to_dict"):
        yield from _parts(value.to_dict())
    else:
        yield type(value).__name__


# --- What many scripts share ------------------------------------------------------------------


def digits(n=44, classes=4):
    """Numbers and classes: 11 batches of four."""
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(n, 8, generator=generator)
    return torch.utils.data.TensorDataset(features, features[:, :classes].argmax(1))


def pictures(n=44, classes=4):
    """Pictures of three colours and 16 x 16 points, as arrays, and classes."""
    generator = np.random.default_rng(5)
    values = generator.integers(0, 256, (n, 16, 16, 3), dtype=np.uint8)
    return [(picture, i % classes) for i, picture in enumerate(values)]


class Augmented(torch.utils.data.Dataset):
    """Samples whose first element goes through a function each time that they are read."""

    def __init__(self, samples, augment):
        self.samples, self.augment = samples, augment

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        value, label = self.samples[index]
        return self.augment(value), label


def network(classes=4):
    """A network that draws random numbers as it trains."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, classes))


def flat_network(classes=4):
    """The same for samples of any shape."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(8))
    return nn.Sequential(first, nn.Linear(8, 32), nn.Dropout(0.1), nn.Linear(32, classes))


def held_out():
    """Evaluations on other data."""
    from camshaft.handlers import Validate

    return Validate(torch.utils.data.DataLoader(digits(20), 6), name="val")


def adam(model):
    return torch.optim.Adam(model.parameters(), 0.01)


def trained_on(data, make_model=network, **options):
    """A trial of data: a network that learns from its batches of pairs."""
    from camshaft import supervised

    model = make_model()
    return Trial(supervised(model, adam(model), nn.functional.cross_entropy), data, **options)


def trained_with(model, loss_of, data, **options):
    """A trial of data whose batches are no pairs: the model learns by `loss_of(batch)`."""
    from camshaft import Engine, Update

    optimizer = adam(model)
    update = Update(optimizer, model=model)
    engine = Engine(lambda state, batch: update(state, loss_of(batch)))
    engine.objects.update(model=model, optimizer=optimizer)
    return Trial(engine, data, **options)


def trained_by(
    make_optimizer, make_model=network, *handlers, schedule=None, beside=None, **options
):
    """A trial of an optimizer: made from a model, it trains as a loop by hand does.

    It may be a dict of optimizers. `schedule(optimizer)` makes a scheduler, which is stepped after
    each step. `beside(model, optimizer)` makes objects by name, and a function that is called then.
    """
    from camshaft import Events, supervised
    from camshaft.handlers import LRSchedule

    def made():
        model = make_model()
        optimizer = make_optimizer(model)
        objects, after_step = beside(model, optimizer) if beside else ({}, None)
        optimizers = optimizer if isinstance(optimizer, dict) else {"optimizer": optimizer}
        return model, optimizer, optimizers, {"model": model, **optimizers, **objects}, after_step

    def loader():
        torch.manual_seed(0)
        return torch.utils.data.DataLoader(digits(), 4, shuffle=True)

    def by_hand():
        model, optimizer, optimizers, objects, after_step = made()
        scheduler = schedule and schedule(optimizer)
        data = loader()
        for each in optimizers.values():
            if hasattr(each, "train"):  # such as schedulefree's
                each.train()
        for _ in range(3):
            for features, classes in data:
                for each in optimizers.values():
                    each.zero_grad()
                nn.functional.cross_entropy(model(features), classes).backward()
                for each in optimizers.values():
                    each.step()
                if scheduler:
                    scheduler.step()
                if after_step:
                    after_step()
        return objects

    model, optimizer, _, objects, after_step = made()
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    engine.objects.update(objects)
    if schedule:
        engine.add(LRSchedule(schedule))
    if after_step:
        engine.on(Events.STEP_COMPLETED)(lambda state: after_step())
    options.setdefault("by_hand", by_hand)
    return Trial(engine.add(*handlers), loader(), **options)
