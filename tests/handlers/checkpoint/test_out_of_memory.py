"""Memory that runs out at a save: with `on_failure="warn"` the run goes on and saves again.

The kernel refuses the memory: a process may have no more than it has, and a little.
"""

import json

import pytest

from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.checkpoint.directory import verify_files

resource = pytest.importorskip("resource")

SCRIPT = """
import gc, json, logging, resource, sys, threading, weakref
from pathlib import Path

import torch
from torch import nn
from camshaft import Engine, Events, ranks
from camshaft.handlers import Checkpoint, Export, latest

directory, what, poor, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
logging.basicConfig(format="%(message)s")
MIB = 2**20


def size(of):
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[of].split()[0]) * 1024


def weights(mib):
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(mib * MIB // 4))
    return model


class Copies:
    'It hands out a copy of what it has.'

    def state_dict(self):
        return {"weight": model.weight.detach().clone()}

    def load_state_dict(self, saved):
        pass


def process(state, batch):
    model.weight.data[0] = state.iteration
    memory = state.recall(process, dict)
    if what == "text" and ranks.rank() == poor and not memory:
        memory["text"] = bytes(32 * MIB)
    if what == "wrong":
        memory["wrong"] = object()


def limit(state):
    'In the second iteration one rank may have next to nothing more.'
    is_poor = state.iteration == 2 and ranks.rank() == poor
    free = size("VmData") + 24 * MIB if is_poor else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_DATA, (free, resource.RLIM_INFINITY))
    if what == "thread":
        threading.stack_size(1024 * MIB if is_poor else 0)
    if what == "rest" and state.iteration == 2:
        gc.disable()
        limit.before = size("VmRSS")


with ranks.process_group():
    model = weights(1 if what in ("text", "thread", "small", "wrong") else 64)
    objects = {"model": model}
    if what == "rest":
        objects = {"first": weights(12), **objects}
    if what == "state":
        objects["copies"] = Copies()
    # Nothing is saved in the first iteration: a thread that is starting then could lack memory.
    when = Events.ITERATION_COMPLETED(after=1)
    kind = Export if what == "export" else Checkpoint
    engine = Engine(process, objects=objects)
    engine.on(Events.ITERATION_COMPLETED)(limit)
    engine.add(kind(directory, when=when, keep=latest(9), retries=0, **options))
    if what == "rest":
        engine.on(Events.ITERATION_STARTED(at=3))(
            lambda state: print((size("VmRSS") - limit.before) // MIB)
        )
    engine.run([0] * 4, max_epochs=1)
"""


def run(processes, directory, what, *, code=0, world=1, poor=0, **options):
    """What each rank prints and says; the save of the second iteration is the poor one."""
    arguments = (SCRIPT, directory, what, poor, json.dumps(options))
    if world > 1:
        return processes.run_ranks(world, *arguments, code=code)
    return processes.run(*arguments, code=code)


def saved(directory):
    """The iterations of the checkpoints, each of which is whole and of its own iteration."""
    found = checkpoints(directory)
    for each in found:
        verify_files(each)
        assert each.state_dict("model")["weight"][0].item() == each.manifest.iteration
    assert not [path for path in directory.iterdir() if path.name.startswith(".")]
    return [each.manifest.iteration for each in found]


COPIED = "could not copy model.safetensors, 67,108,864 bytes (OSError: [Errno 12] Cannot allocate"
KINDS = {
    "copy": f"{COPIED} memory). With background=False nothing is copied: the run waits while its "
    "own memory is written",
    "export": COPIED,
    "state": "could not take the state_dict() of 'copies' (RuntimeError: [enforce fail at",
    "text": "could not take the state of the run and what its handlers remember (MemoryError: )",
    "thread": "could not start the thread that writes checkpoints (RuntimeError: can't start new",
}


ONE_FAST = [
    pytest.param(k, marks=() if k in ("copy", "thread") else pytest.mark.slow) for k in KINDS
]


@pytest.mark.parametrize("what", ONE_FAST)
def test_a_save_without_memory_is_left_out_with_an_error_and_the_next_one_works(
    processes, tmp_path, what
):
    said = run(processes, tmp_path, what, on_failure="warn").stderr
    assert saved(tmp_path) == [3, 4]
    assert KINDS[what] in said
    assert said.count("the run goes on without it") == 1, said


@pytest.mark.quick(what=1)
@pytest.mark.parametrize("what", ["copy", "thread"])
def test_by_default_it_is_an_error_that_says_what_was_copied_and_what_to_do(
    processes, tmp_path, what
):
    said = run(processes, tmp_path, what, code=1).stderr
    assert KINDS[what] in said
    assert "in Events.SAVING, handler Checkpoint.save" in said
    assert saved(tmp_path) == []


@pytest.mark.slow
def test_without_a_copy_the_same_memory_is_enough(processes, tmp_path):
    run(processes, tmp_path, "copy", background=False)
    assert saved(tmp_path) == [2, 3, 4]


@pytest.mark.slow
def test_what_was_half_copied_is_given_back_at_once(processes, tmp_path):
    """Of two files the first one was copied already; no garbage collection runs in between."""
    kept = int(run(processes, tmp_path, "rest", on_failure="warn").stdout)
    assert kept < 8  # MiB of 12
    assert saved(tmp_path) == [3, 4]


def test_a_value_that_no_checkpoint_can_hold_stays_an_error(processes, tmp_path):
    said = run(processes, tmp_path, "wrong", code=1, on_failure="warn").stderr
    assert "TypeError: run.0.memory.engine.process.wrong is a builtins.object" in said


@pytest.mark.slow
@pytest.mark.parametrize(("what", "poor"), [("text", 1), ("copy", 0)])
def test_ranks_leave_out_a_save_together(processes, tmp_path, what, poor):
    """The first rank copies the model, each rank what it remembers."""
    ran = run(processes, tmp_path, what, world=2, poor=poor, on_failure="warn")
    assert saved(tmp_path) == [3, 4]
    assert [KINDS[what] in each.stderr for each in ran] == [rank == poor for rank in range(2)]


@pytest.mark.slow
def test_ranks_end_together_if_one_may_not_go_on(processes, tmp_path):
    ran = run(processes, tmp_path, "text", world=2, poor=1, code=1)
    assert KINDS["text"] in ran[1].stderr
    assert "another rank could not take part in a checkpoint; its own error says" in ran[0].stderr
