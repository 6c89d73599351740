"""The store of an attempt, and what ranks that fail say to one another in it."""

import os
import re
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import DistBackendError, HashStore

from camshaft.engine.ranks.failure import AnotherRankError, is_loss
from camshaft.engine.ranks.process_group import store_of_attempt

HOST = socket.gethostname()
SECONDS = timedelta(seconds=20)


def joined(store, count, seconds=SECONDS, without=()):
    """The places of all ranks of one attempt, or the errors."""

    def join(rank):
        try:
            return store_of_attempt(store, rank, count, seconds)
        except TimeoutError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return [*pool.map(join, [rank for rank in range(count) if rank not in without])]


def test_the_ranks_of_an_attempt_meet_where_no_earlier_one_has_been():
    store = HashStore()
    for _ in range(3):
        places = joined(store, 4)
        assert not any(place.check(["address"]) for place in places)
        places[0].set("address", "alive")
        assert {place.get("address") for place in places} == {b"alive"}


def test_ranks_that_died_while_they_joined_do_not_matter_to_the_next_attempt_of_fewer():
    store, short = HashStore(), timedelta(seconds=0.1)
    joined(store, 4, short, without=(0,))
    joined(store, 4, short, without=(2, 3))
    places = joined(store, 3)
    places[2].set("address", "alive")
    assert places[0].get("address") == b"alive"


def test_who_has_not_come_is_named():
    here, late = joined(HashStore(), 4, timedelta(seconds=0.2), without=(1, 3))
    assert (
        str(here)
        == "ranks [1, 3] of 4 did not join the process group within 0.2 s; their logs say why"
    )
    assert late.get is not None  # rank 2 has its answer
    (alone,) = joined(HashStore(), 2, timedelta(seconds=0.1), without=(0,))
    assert "rank 1 waited 0.1 s for rank 0 to begin the process group" in str(alone)


def test_an_error_that_only_says_that_another_rank_is_lost_is_no_reason_of_its_own():
    timed_out = "[/pytorch/third_party/gloo/gloo/transport/tcp/x.cc:1] Timed out waiting 4000ms"
    for text in (timed_out, "Application timeout caused pair closure"):
        assert is_loss(RuntimeError(text))
    assert is_loss(DistBackendError("NCCL error"))
    assert is_loss(AnotherRankError("another rank could not save"))
    for own in (ValueError("gloo"), RuntimeError("DataLoader timed out"), MemoryError()):
        assert not is_loss(own)


SAY = """
import os, sys, time
from camshaft import Engine, ranks

def process(state, batch):
    if ranks.rank() == 1:
        {first}
    with ranks.on_all_ranks("look"):
        if ranks.rank() == 2:
            raise KeyError("the second one")

with ranks.process_group("gloo", timeout=3):
    Engine(process).run([1], max_epochs=1)
"""
OURS = 'raise OSError("no space left")'


@pytest.mark.slow
def test_the_first_reason_reaches_all_and_an_error_of_its_own_stays_as_it_is(processes):
    zero, one, two = processes.run_ranks(3, SAY.format(first=OURS), code=1)
    note = f"rank 1 ({socket.gethostname()}) failed first: OSError: no space left"
    assert note in zero.stderr
    assert note not in one.stderr
    assert note in two.stderr or "KeyError: 'the second one'" in two.stderr


def test_a_rank_that_exits_tells_the_others(processes):
    zero, one, two = processes.run_ranks(3, SAY.format(first="sys.exit(3)"), code=None)
    assert [each.returncode for each in (zero, one, two)] == [1, 3, 1]
    assert f"rank 1 ({socket.gethostname()}) failed first: SystemExit: 3" in zero.stderr


BEHIND = """
from camshaft import Engine, ranks

with ranks.process_group("gloo", timeout=3):
    Engine(lambda state, batch: None).run([1], max_epochs=1)
    if ranks.rank() == 1:
        raise OSError("no space left")
"""


@pytest.mark.slow
def test_a_rank_that_fails_behind_its_run_is_named_by_those_that_wait_for_it(processes):
    zero, one = processes.run_ranks(2, BEHIND, code=1)
    assert f"rank 1 ({socket.gethostname()}) failed first: OSError: no space left" in zero.stderr
    assert "failed first" not in one.stderr


ONE = """
import time, torch
from torch.nn.parallel import DistributedDataParallel
from camshaft import Engine, Events, ranks, supervised
from camshaft.handlers import Checkpoint

with ranks.process_group("gloo", timeout=60):
    net = DistributedDataParallel(torch.nn.Linear(2, 1))
    data = [(torch.ones(4, 2), torch.ones(4, 1))] * 6
    engine = supervised(net, torch.optim.SGD(net.parameters(), 0.1), torch.nn.functional.mse_loss)

    @engine.on(Events.ITERATION_COMPLETED(at=(2, 9)))
    def look(state):
        if state.iteration == 2:  # all of them, one later than the others
            time.sleep(2 * (ranks.rank() == 1))
            state.save("all")
            state.stop_epoch()
        elif ranks.rank() == 1:
            {alone}

    @engine.on(Events.EPOCH_COMPLETED)
    def shorter(state):
        if {at_the_end} and state.epoch == 2 and ranks.rank() == 1:
            state.stop("by one rank")

    began = time.monotonic()
    try:
        state = engine.run(data, max_epochs=5)
        print(state.epoch, state.iteration, state.stop_reason)
    finally:
        assert time.monotonic() - began < 30
"""


@pytest.mark.parametrize(
    ("alone", "asked"),
    [
        ('state.stop("enough")', r"stop \(enough\)"),
        pytest.param("state.stop_epoch()", "end the epoch", marks=pytest.mark.soak),
        pytest.param('state.save("b")', r"save \(b\)", marks=pytest.mark.soak),
        pytest.param('state.interrupt("a")', r"stop \(a\)", marks=pytest.mark.slow),
        # A handler saves in this iteration on all ranks.
        pytest.param('state.save("own")', r"save \(own\)", marks=pytest.mark.slow),
        pytest.param(
            'engine.on(Events.SAVING)(lambda state: state.interrupt("own"))',
            r"stop \(own\) and save \(own\)",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_rank_that_leaves_an_epoch_alone_ends_all_of_them_within_seconds(
    processes, tmp_path, alone, asked
):
    script = ONE.format(alone=alone, at_the_end=False)
    if "own" in alone:
        saving = f"Checkpoint({str(tmp_path)!r}, when=Events.ITERATION_COMPLETED(at=9))"
        script = script.replace("began =", f"engine.add({saving})\n    began =", 1)
    zero, one, two = processes.run_ranks(3, script, code=1)
    said = rf"rank 1 was asked to {asked} in iteration 9, and rank \d went on without it"
    assert re.search(rf"RuntimeError: {said}.*any_rank", one.stderr)
    for each in (zero, two):
        assert re.search(rf"rank 1 \({HOST}\) failed first: RuntimeError: {said}", each.stderr)


APART = """
import time, torch
from torch.nn.parallel import DistributedDataParallel
from camshaft import Engine, Events, ranks, supervised
from camshaft.handlers import Checkpoint, EarlyStopping, Validate

with ranks.process_group("gloo", timeout=60):
    net = DistributedDataParallel(torch.nn.Linear(2, 1))
    data = [(torch.ones(4, 2), torch.ones(4, 1))] * 6
    engine = supervised(net, torch.optim.SGD(net.parameters(), 0.1), torch.nn.functional.mse_loss)
    on_one = {{"where": lambda state: ranks.rank() == 1}}

    @engine.on(Events.EPOCH_COMPLETED)
    def look(state):
        if ranks.rank() == 1:
            with ranks.alone():
                print(engine.evaluate(data).iteration)
            {evaluates}

    engine.add(*{handlers})
    began = time.monotonic()
    try:
        engine.run(data, max_epochs=1)
    finally:
        assert time.monotonic() - began < 30
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("handlers", "evaluates", "said"),
    [
        ("[]", "engine.evaluate(data)", "evaluates in iteration 6"),
        ("[]", "", ""),
        ("[Validate(data, when=Events.ITERATION_COMPLETED(**on_one))]", "", "evaluates in iter"),
        (
            "[Checkpoint('runs', when=Events.ITERATION_COMPLETED(at=2, **on_one))]",
            "",
            "calls Checkpoint.ask in iteration 2",
        ),
        (
            "[EarlyStopping('loss', when=Events.EPOCH_COMPLETED(**on_one))]",
            "",
            r"calls EarlyStopping\(loss\).look in iteration 6",
        ),
    ],
)
def test_what_one_rank_begins_by_itself_ends_all_of_them_within_seconds(
    processes, handlers, evaluates, said
):
    script = APART.format(handlers=handlers, evaluates=evaluates)
    zero, one = processes.run_ranks(2, script, code=int(bool(said)))
    if said:
        said = rf"rank 1 {said}.*, and rank 0 went on without it. .*ranks"
        assert re.search(rf"RuntimeError: {said}", one.stderr)
        assert re.search(rf"rank 1 \({HOST}\) failed first: RuntimeError: {said}", zero.stderr)
    else:
        assert one.stdout == "6\n"


AFTERWARDS = """
import torch
from camshaft import Engine, Events, ranks, supervised

with ranks.process_group("gloo", timeout=60):
    net = torch.nn.Linear(2, 1)
    data = [(torch.ones(4, 2), torch.ones(4, 1))] * 6
    engine = supervised(net, torch.optim.SGD(net.parameters(), 0.1), torch.nn.functional.mse_loss)
    {before}
    engine.run(data, max_epochs=1)
    print(engine.evaluate(data).iteration)
    if ranks.rank() == 1:
        with ranks.alone():
            print(engine.evaluate(data).iteration)
    {behind}
    {at_the_end}
"""


ALONE = "if ranks.rank() == 1: engine.evaluate(data)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "behind", "at_the_end", "said"),
    [
        (ALONE, "", "", "rank 0 begins a run"),
        ("engine.evaluate(data)", ALONE, "engine.run(data, max_epochs=1)", "rank 0 begins a run"),
        ("", ALONE, "", "rank 0 has come to its end"),
        ("", ALONE, "import os; os._exit(0)", "the process of rank 0 has ended"),
    ],
    ids=["before", "between", "leaves", "exits"],
)
def test_an_evaluation_of_one_rank_outside_of_a_run_names_the_rank_that_does_something_else(
    processes, before, behind, at_the_end, said
):
    script = AFTERWARDS.format(before=before, behind=behind, at_the_end=at_the_end)
    zero, one = processes.run_ranks(2, script, code=None)
    assert one.stdout == ("6\n6\n" if behind else "")
    said = f"rank 1 evaluates outside of a run, and {said}. An evaluation sums over the ranks"
    assert f"Error: {said}" in one.stderr
    is_gone = "exit" in at_the_end
    assert zero.returncode == int(not is_gone)
    assert is_gone or "rank 1 (" in zero.stderr


@pytest.mark.slow
def test_an_evaluation_of_one_rank_behind_a_run_is_right_without_the_others(processes):
    script = AFTERWARDS.format(before="", behind="", at_the_end="")
    zero, one = processes.run_ranks(2, script)
    assert (zero.stdout, one.stdout) == ("6\n", "6\n6\n")


STAGE = """
from torch.distributed import new_group
from camshaft import Engine, Events, ranks

with ranks.process_group("gloo", timeout=60):
    own = [new_group([0]), new_group([1, 2])][min(ranks.rank(), 1)]

    def step(state, batch):
        if not state.training and ranks.rank() > 0:  # as the last stage of a pipeline
            print(ranks.total(batch, group=own))

    engine = Engine(step)
    engine.on(Events.EPOCH_COMPLETED)(lambda state: engine.evaluate([1]))
    engine.run([1], max_epochs=2)
"""


@pytest.mark.slow
def test_some_ranks_may_sum_in_an_evaluation_in_which_the_others_send_nothing(processes):
    first, *others = processes.run_ranks(3, STAGE)
    assert first.stdout == ""
    assert {each.stdout for each in others} == {"2\n2\n"}


OFTEN = """
import torch
from camshaft import Engine, Events, ranks, supervised
from camshaft.engine.ranks import default_store

with ranks.process_group("gloo", timeout=60):
    net = torch.nn.Linear(2, 1)
    data = [(torch.ones(4, 2), torch.ones(4, 1))] * 12
    engine = supervised(net, torch.optim.SGD(net.parameters(), 0.1), torch.nn.functional.mse_loss)

    @engine.on(Events.ITERATION_COMPLETED)
    def look(state):
        engine.evaluate(data[:1])
        if state.iteration in (5, 12):
            print(default_store().num_keys())

    engine.run(data, max_epochs=1)
"""


@pytest.mark.slow
def test_many_evaluations_leave_no_more_in_the_store_than_a_few(processes):
    for each in processes.run_ranks(2, OFTEN):
        early, late = map(int, each.stdout.split())
        assert abs(late - early) <= 3  # those of one meeting, which the other rank may have begun


KILLED = """
import os, signal, torch
from camshaft import Engine, Events, ranks, supervised

with ranks.process_group("gloo", timeout=60):
    net = torch.nn.Linear(2, 1)
    data = [(torch.ones(4, 2), torch.ones(4, 1))] * 6
    engine = supervised(net, torch.optim.SGD(net.parameters(), 0.1), torch.nn.functional.mse_loss)

    @engine.on(Events.ITERATION_COMPLETED(at=3))
    def fail(state):
        if ranks.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    engine.run(data, max_epochs=2, max_steps=3)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="only Linux tells who is there")
def test_a_rank_that_is_killed_as_the_others_stop_inside_an_epoch_is_named_by_them(processes):
    zero, one, two = processes.run_ranks(3, KILLED, code=None)
    assert [each.returncode for each in (zero, one, two)] == [1, -9, 1]
    for number, each in ((0, zero), (2, two)):
        said = f"rank {number} was asked to stop (max_steps) in iteration 3, and the process of"
        assert f"AnotherRankError: {said} rank 1 has ended" in each.stderr
        assert "no answer of ranks [1]: ended, killed" in each.stderr


@pytest.mark.slow
def test_ranks_that_leave_an_epoch_together_or_at_its_end_go_on(processes):
    script = ONE.format(alone="pass", at_the_end=True)
    for each in processes.run_ranks(3, script):
        assert each.stdout == "2 8 by one rank\n"


@pytest.mark.slow
def test_an_error_that_all_ranks_raise_because_of_one_names_that_one(processes):
    zero, one, two = processes.run_ranks(3, SAY.format(first="pass"), code=1)
    for each in (zero, one):
        assert "AnotherRankError: another rank could not look" in each.stderr
        assert "failed first: KeyError: 'the second one'" in each.stderr
    assert "failed first" not in two.stderr


@pytest.mark.slow
def test_where_rank_0_kept_the_store_and_is_killed_the_others_say_so(processes):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    env = {"MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "False"}
    script = """
    import os, signal, time
    from camshaft import Engine, ranks

    def process(state, batch):
        if ranks.rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.2)
        ranks.count(True)

    with ranks.process_group("gloo", timeout=3):
        Engine(process).run([1], max_epochs=1)
    """
    killed, other = processes.run_ranks(2, script, code=None, env=env)
    assert (killed.returncode, other.returncode) == (-9, 1)
    assert "the reasons of other ranks cannot be read from the store" in other.stderr
    assert "ended with it" in other.stderr


def test_the_job_of_the_page_is_queued_again_after_a_signal_and_not_after_an_error(tmp_path):
    page = Path(__file__).parents[3] / "docs/guides/launchers.md"
    (job,) = re.findall(r"```sh\n(#!/bin/bash.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "job.sh").write_text(job)
    for name, does in (("srun", "exit $CODE"), ("scontrol", 'echo "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    for code, says in ((0, ""), (1, ""), (138, "requeue 7\n"), (143, "requeue 7\n")):
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "CODE": str(code)}
        result = subprocess.run(
            ["bash", tmp_path / "job.sh"], env=env, capture_output=True, text=True
        )
        assert result.stdout == says
