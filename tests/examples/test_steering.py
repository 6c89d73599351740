"""The example that is steered: killed around each change, and made again from its ledger alone."""

import json
import shutil
import threading
from pathlib import Path

import pytest

from camshaft.__main__ import main

from .runs import check_same_run

STEERING = Path(__file__).parents[2] / "examples" / "steering.py"
SHORT = ("--max-epochs", 12, "--interval", 1e-9)
# It kills itself: a kill from outside comes when it comes, which may be after the change.
KILLED = """
    import os, runpy, sys
    from camshaft import Engine, Events

    path, at, *arguments = sys.argv[1:]
    run = Engine.run

    def killed(engine, *given, **options):
        engine.on(Events.ITERATION_STARTED(at=int(at)))(lambda state: os.kill(os.getpid(), 9))
        return run(engine, *given, **options)

    Engine.run, sys.argv = killed, [path, *arguments]
    runpy.run_path(path, run_name="__main__")
"""


def ask(directory, *words):
    """Ask by the command, in a thread that waits for the answer."""
    codes = []
    thread = threading.Thread(target=lambda: codes.append(main(["set", str(directory), *words])))
    thread.start()
    return thread, codes


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_killed_before_and_after_each_change_it_is_the_run_of_its_ledger(
    processes, tmp_path, ranks
):
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    asked = [
        (),
        ("optimizer.initial_lr=5e-4", "--at", "200"),
        ("max_epochs=14", "Update.accumulate=2", "--at", "400"),
    ]
    # It saves every 130 iterations. The kills: before a change that is in the ledger; when it is
    # made; when a checkpoint has it.
    for words, kills in zip(asked, ([140], [195, 205, 270], [395, 405, 530]), strict=True):
        waiting = [ask(parts, *words)] if words else []
        for kill in kills:
            killed = ["--directory", parts, *SHORT]
            results = processes.run_ranks(ranks, KILLED, STEERING, kill, *killed, code=None)
            codes = [each.returncode for each in results]
            assert -9 in codes, results[0].stderr[-4000:]
            assert 0 not in codes
        for thread, answer in waiting:
            thread.join()
            assert answer == [0]
    processes.run_ranks(ranks, STEERING, "--directory", parts, *SHORT)
    rows = map(json.loads, (parts / "steering/ledger.jsonl").read_text().splitlines())
    assert [(row["set"], row["iteration"]) for row in rows] == [
        ({"optimizer.initial_lr": 5e-4}, 200),
        ({"max_epochs": 14, "Update.accumulate": 2}, 400),
    ]
    shutil.copytree(parts / "steering", whole / "steering")
    processes.run_ranks(ranks, STEERING, "--directory", whole, *SHORT)
    check_same_run(parts, whole)
    (saved,) = whole.glob("iteration-*798")
    assert '"epoch": 14' in (saved / "manifest.json").read_text()
