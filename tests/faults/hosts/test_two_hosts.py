"""A job on two hosts: preempted on one, failing on one, and with folders that are not shared."""

import json
import os
import signal
import time

import pytest

from camshaft.handlers.checkpoint import checkpoints

pytestmark = pytest.mark.slow


def until(condition, seconds=90):
    """Wait for it."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def outcome(directory, rank):
    return json.loads(directory.with_name(f"{directory.name}.rank-{rank}.json").read_text())


def ended(hosts, *processes, seconds=120):
    """What each has written; when it ends, nothing of it is left on its host."""
    texts = [process.communicate(timeout=seconds)[0] for process in processes]
    assert [hosts.processes(host) for host in hosts] == [[], []]
    return texts


def test_a_preempted_host_stops_both_at_one_step_and_the_run_goes_on_when_one_fails_too(
    hosts, processes, tmp_path
):
    directory, alone = tmp_path / "run", tmp_path / "alone"
    slowly = ("--preemptible", "--delay=0.2", "--iterations=12")
    started = [hosts.torchrun(number, directory, *slowly) for number in (0, 1)]
    until(lambda: len([*directory.glob("iteration-*")]) >= 2)
    os.kill(started[1].pid, signal.SIGTERM)  # torchrun passes it on
    first, second = ended(hosts, *started)
    assert "SIGTERM: stops after this step" in second
    saved = [each.manifest for each in checkpoints(directory)]
    assert "SIGTERM" in saved[-1].reason
    assert "SIGTERM" not in saved[-2].reason
    assert all("exits with 143, as SIGTERM asked it to" in each for each in (first, second))
    stopped = saved[-1].iteration

    options = ("--nnodes=2", "--max-restarts=3")
    fault = f"--fault=1:raise:collective:{stopped + 2}"
    started = [hosts.torchrun(n, directory, fault, options=options) for n in (0, 1)]
    first, second = ended(hosts, *started)
    assert [each.returncode for each in started] == [0, 0]
    assert f"rank 1 ({hosts[1].name}) failed first: ValueError: the fault of this rank" in first
    assert outcome(directory, 0)["began"][0] >= stopped  # the attempt after the fault
    processes.run_ranks(2, hosts.script, alone)
    for rank in (0, 1):
        assert outcome(directory, rank) | {"began": []} == outcome(alone, rank) | {"began": []}
    left = {path.name for path in directory.iterdir() if "iteration" not in path.name}
    assert left == {"LATEST", "rows.jsonl", "logs"}
