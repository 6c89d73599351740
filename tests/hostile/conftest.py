"""A small run with all that a run directory may hold, and what measures the reading of it.

The limits are of processor time and of the memory of this process, so a busy machine changes
nothing. A call that waits, as for a pipe that nobody writes, is ended by the clock.
"""

import io
import json
import logging
import signal
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events, supervised
from camshaft.__main__ import main
from camshaft.handlers import CSV, Checkpoint, ImageFiles, Journal, JSONLines, best, latest
from camshaft.handlers.loggers import Histogram, Image

SECONDS, MEGABYTES, PATIENCE = 2, 200, 60
INPUTS = torch.linspace(-1, 1, 36).reshape(9, 4)
REFUSALS = (ValueError, OSError)


class Hung(BaseException):
    """Raised by the clock; no handler of errors takes it for one."""


def train(directory, until=4, **options):
    """A run that saves, logs and draws after each iteration; or goes on from what is there."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), nn.MSELoss())
    each = Events.ITERATION_COMPLETED

    @engine.on(each)
    def draw(state):
        state.metrics["image"] = Image(torch.zeros(2, 3))
        state.metrics["weights"] = Histogram.of(model[0].weight, bins=4)

    keep = latest(3) | best(1, "loss")
    engine.add(
        Checkpoint(directory, when=each, keep=keep, retries=0, background=False, **options),
        JSONLines(directory / "rows.jsonl", when=each),
        CSV(directory / "rows.csv", when=each),
        ImageFiles(directory / "images", when=each),
        Journal(directory, config={"lr": 0.1, "sizes": [4, 8], "model": {"width": 8}}),
    )
    engine.run(DataLoader(TensorDataset(INPUTS, INPUTS[:, :1]), 3), max_iterations=until)


def peak(*, anew=False):
    """The most memory that this process has had, in megabytes, since it was asked to begin anew."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0


class Said(logging.Handler):
    """Keeps what the logger says."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def measured(act):
    """What is wrong with a call, or None: its time, its memory, its errors, its words."""

    def hung(number, frame):
        raise Hung

    said, out, err = Said(), io.StringIO(), io.StringIO()
    logger = logging.getLogger("camshaft")
    logger.addHandler(said)
    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    low, began, wrong = peak(anew=True), time.process_time(), None
    try:
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = act()
        if code not in (0, 1, 2):
            wrong = f"exit code {code}"
    except REFUSALS as error:
        err.write(str(error))
    except Hung:
        wrong = f"waits for more than {PATIENCE} s"
    except (Exception, SystemExit) as error:
        wrong = f"{type(error).__name__}: {str(error)[:300]!r} at {_place(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        logger.removeHandler(said)
    seconds, rise = time.process_time() - began, peak() - low
    if wrong is None and seconds > SECONDS:
        wrong = f"takes {seconds:.1f} s"
    if wrong is None and rise > MEGABYTES:
        wrong = f"takes {rise:.0f} MB"
    for text in (out.getvalue(), err.getvalue(), *said.lines):
        if wrong is None and not text.replace("\n", "").isprintable():
            odd = next(c for c in text if not c.isprintable() and c != "\n")
            at = text.index(odd)
            wrong = f"says {text[max(0, at - 80) : at + 40]!r}"
    return wrong


def _place(error):
    trace = error.__traceback__
    places = []
    while trace is not None:
        places.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " ".join(places[-4:])


@pytest.fixture(scope="session")
def attacks():
    spec = spec_from_file_location("hostile_attacks", Path(__file__).with_name("attacks.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def hostile(in_child, attacks):
    """The functions above and the attacks, since tests cannot import them."""

    def in_small_child(task):
        """What a forked process returns; an error if it is killed, or takes too much memory."""
        found, status = in_child(task, megabytes=3000)
        assert status == 0, f"the process ended with {status}"
        return found

    return SimpleNamespace(
        train=train, measured=measured, in_child=in_small_child, main=main, attack=attacks.attack,
        attacks_on_pieces=attacks.ATTACKS_ON_PIECES, all_attacks=attacks.ATTACKS,
    )  # fmt: skip


@pytest.fixture(scope="session")
def honest(tmp_path_factory):
    """The directory of a run that nobody has touched."""
    directory = tmp_path_factory.mktemp("honest") / "run"
    train(directory)
    return directory


@pytest.fixture
def fitting(attacks):
    """Change the tree of plain values of a checkpoint, with a manifest that fits."""

    def change(run, act, name="iteration-0000000004"):
        tree = json.loads((run / name / "state.json").read_text())
        act(tree)
        (run / name / "state.json").write_text(json.dumps(tree))
        attacks.forge(run / name, draw=None)

    return change
