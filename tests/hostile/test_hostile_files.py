"""Any file of a run directory may be an attacker's: every reader ends soon, small, and in order."""

import json
import os
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st

from camshaft.handlers import load_matching
from camshaft.handlers.checkpoint import checkpoints, weights_at
from camshaft.handlers.tools.report import facts, page

from .draws import drawn, run_draws

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
NEWEST = "iteration-0000000004"


def commands(run):
    """Each command of the command line, with its arguments."""
    out = run.parent / "out"
    return {
        "inspect": ["inspect", run],
        "inspect one": ["inspect", run / NEWEST],
        "inspect --json --verify": ["inspect", run, "--json", "--verify"],
        "verify": ["verify", run],
        "prune": ["prune", run, "--keep", "latest(1) | best(1, 'loss')"],
        "prune --strip": ["prune", run, "--keep", "latest(1)", "--strip"],
        "export": ["export", run, out / "all.pt"],
        "export one": ["export", run / NEWEST, out / "model.pt", "--object", "model"],
        "report": ["report", run, "-o", out / "page.html"],
        "report of two": ["report", run, run, "-o", out / "page.html"],
    }


def watch(run):
    """What `camshaft watch` does at a request, twice."""
    runs = facts.runs_in([run])
    for _ in range(2):
        looks = [each.look() for each in runs]
        found = [each.facts() for each in runs]
        live = page.Page(found, lambda picture: str(picture.size), is_live=True)
        live.html()
        json.dumps(live.news(), allow_nan=False)
    assert looks
    return 0


def readers(hostile, run):
    """Whatever reads a run directory, by name; each gives an exit code, or raises what it may."""
    found = {
        name: lambda given=given: hostile.main(list(map(str, given)))
        for name, given in commands(run).items()
    }

    def resume(how):
        hostile.train(run, until=5, resume=how)
        return 0

    def load(act):
        act()
        return 0

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
    return found | {
        "watch": lambda: watch(run),
        "resume=True": lambda: resume(True),
        "resume='best'": lambda: resume("best"),
        "resume=path": lambda: resume(run / NEWEST),
        "a new run": lambda: load(lambda: hostile.train(run, until=2, start_over=True)),
        "weights_at": lambda: load(lambda: weights_at(run, "model")),
        "load_matching": lambda: load(lambda: load_matching(model, run / NEWEST)),
        "load a file": lambda: load(
            lambda: load_matching(model, run / NEWEST / "model.safetensors")
        ),
        "checkpoints": lambda: load(lambda: checkpoints(run).best("loss")),
    }


def attacked(hostile, honest, place, data):
    """A copy of an honest run, after some attacks."""
    shutil.rmtree(place, ignore_errors=True)
    (place / "out").mkdir(parents=True)
    run = place / "run"
    shutil.copytree(honest, run)
    hostile.attack(data.draw, run)
    return run


def check(hostile, honest, place, draws, number):
    """Draw attacks and let a reader read; the readers' names, and what was wrong with any."""
    seen, wrong = Counter(), Counter()
    place.mkdir(exist_ok=True)
    os.chdir(place.parent)  # the name of a socket must be short

    @drawn(draws, number)
    def reads(data):
        run = attacked(hostile, honest, place, data)
        for name in data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2)):
            seen[name] += 1
            if found := hostile.measured(readers(hostile, run)[name]):
                wrong[f"{name}: {found}"] += 1

    reads()
    return {"seen": seen, "wrong": wrong}


NAMES = [
    *commands(Path("run")),
    *("watch", "resume=True", "resume='best'", "resume=path", "a new run"),
    *("weights_at", "load_matching", "load a file", "checkpoints"),
]


@pytest.fixture
def look(hostile, honest, tmp_path):
    """What was wrong in so many draws."""
    act = partial(check, hostile, honest, tmp_path / "place")
    return lambda draws, first=0: run_draws(hostile, act, draws, first)


def test_whatever_is_in_a_run_directory_every_reader_ends_soon_and_in_order(look):
    assert look(25) == {}


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_whatever_is_in_a_run_directory_in_20000_draws(look):
    assert look(20_000, first=100) == {}


@pytest.mark.soak
def test_a_sample_of_commands_in_processes_of_their_own(hostile, honest, processes, tmp_path):
    @drawn(12, 1)
    def runs(data):
        run = attacked(hostile, honest, tmp_path / "place", data)
        given = data.draw(st.sampled_from([*commands(run).values()]))
        told = processes.module("camshaft", *given, cwd=tmp_path, code=None)
        assert told.returncode in (0, 1, 2)
        assert "Traceback" not in told.stderr

    runs()
