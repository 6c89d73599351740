"""The table of pieces and the files of ranks may be an attacker's, too.

Each reader ends soon, small and in order. What it loads has the values of one of the checkpoints,
unless the attacker has written new values with checksums that fit.
"""

import os
import shutil
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from hypothesis import strategies as st
from torch import nn

from camshaft.handlers import load_matching
from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.checkpoint.directory import check_pieces, saved_at, verify_portion

from .draws import drawn, run_draws

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
NEWEST = "iteration-0000000004"
SCRIPT = Path(__file__).with_name("pieces_on_ranks.py")
KEEPS_VALUES = ("change_pieces", "change_world")
"""Attacks that leave the numbers in the files as they are."""


@pytest.fixture(scope="module")
def sharded(processes, tmp_path_factory):
    """The directory of a run of two ranks that nobody has touched."""
    directory = tmp_path_factory.mktemp("sharded") / "run"
    processes.run_ranks(2, SCRIPT, directory)
    return directory


@pytest.fixture(scope="module")
def train():
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        from pieces_on_ranks import train
    finally:
        sys.path.pop(0)
    return train


def plain_model():
    return nn.Sequential(nn.Linear(4, 7), nn.Dropout(), nn.Linear(7, 1))


def bits(state):
    return [each.tolist() for each in state.values()]


def readers(hostile, train, run, loaded):
    """Whatever reads pieces, by name; models that were loaded are noted."""
    out = run.parent / "out"

    def command(*words):
        return lambda: hostile.main(list(map(str, words)))

    def note(act):
        def load():
            loaded.append(bits(act()))
            return 0

        return load

    def matching(source):
        model = plain_model()
        load_matching(model, source)
        return model.state_dict()

    def in_parts():
        for part in range(3):
            verify_portion(saved_at(run / NEWEST), part, 3)
            check_pieces(saved_at(run / NEWEST), part, 3)
        return 0

    return {
        "inspect": command("inspect", run, "--json", "--verify"),
        "verify": command("verify", run),
        "verify one": command("verify", run / NEWEST),
        "export": command("export", run / NEWEST, out / "model.safetensors"),
        "export pt": command("export", run, out / "model.pt"),
        "prune": command("prune", run, "--keep", "latest(1)", "--strip"),
        "verify in parts": in_parts,
        # With nothing left to do, the model is as it was loaded.
        "resume": note(lambda: train(run, until=1, resume=True).state_dict()),
        "resume path": note(lambda: train(run, until=1, resume=run / NEWEST).state_dict()),
        "state_dict": note(lambda: checkpoints(run).latest().state_dict("model")),
        "load_matching": note(lambda: matching(run)),
        "load_matching one": note(lambda: matching(run / NEWEST)),
    }


def check(hostile, train, honest, known, place, draws, number):
    """Draw attacks and let readers read: how often, and what was wrong."""
    seen, wrong = Counter(), Counter()
    place.mkdir(exist_ok=True)
    os.chdir(place.parent)

    @drawn(draws, number)
    def reads(data):
        shutil.rmtree(place, ignore_errors=True)
        (place / "out").mkdir(parents=True)
        run = shutil.copytree(honest, place / "run")
        of_pieces = hostile.attacks_on_pieces
        keeps = data.draw(st.booleans())
        chosen = [each for each in of_pieces if not keeps or each.__name__ in KEEPS_VALUES]
        hostile.attack(data.draw, run, chosen)
        loaded = []
        found = readers(hostile, train, run, loaded)
        for name in data.draw(st.lists(st.sampled_from([*found]), min_size=1, max_size=2)):
            seen[name] += 1
            if told := hostile.measured(found[name]):
                wrong[f"{name}: {told}"] += 1
            if keeps and any(each not in known for each in loaded):
                wrong[f"{name}: loads what nobody saved"] += 1

    reads()
    return {"seen": seen, "wrong": wrong}


@pytest.fixture
def look(hostile, train, sharded, tmp_path):
    """What was wrong in so many draws."""
    known = [bits(each.state_dict("model")) for each in checkpoints(sharded)]
    assert len(known) == 3
    act = partial(check, hostile, train, sharded, known, tmp_path / "place")
    return lambda draws, first=0: run_draws(hostile, act, draws, first)


@pytest.mark.slow
def test_of_pieces_that_nobody_touched_every_reader_gives_what_was_saved(
    hostile, train, sharded, tmp_path
):
    newest = bits(checkpoints(sharded).latest().state_dict("model"))

    def read():
        given, loaded = {}, []
        for name in readers(hostile, train, sharded, loaded):
            place = tmp_path / name
            (place / "out").mkdir(parents=True)
            run = shutil.copytree(sharded, place / "run")
            given[name] = readers(hostile, train, run, loaded)[name]()
        return given, loaded

    given, loaded = hostile.in_child(read)
    assert set(given.values()) == {0}
    assert loaded == [newest] * 5


@pytest.mark.slow
def test_whatever_pieces_hold_every_reader_ends_soon_and_loads_nothing_else(look):
    assert look(60) == {}


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_whatever_pieces_hold_in_5000_draws(look):
    assert look(5000, first=100) == {}
