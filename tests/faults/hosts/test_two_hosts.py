"""A job on two hosts: preempted on one, failing on one, and with folders that are not shared."""

import json
import os
import random
import signal
import time

import numpy
import pytest

from camshaft.handlers.checkpoint import checkpoints


def until(condition, seconds=200):
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


@pytest.mark.soak
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
        assert same(directory, rank) == same(alone, rank)
    left = {path.name for path in directory.iterdir() if "iteration" not in path.name}
    assert left == {"LATEST", "rows.jsonl", "logs"}


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_second_host_comes_and_goes_and_the_run_goes_on_with_what_is_left(
    hosts, processes, tmp_path
):
    directory, alone = tmp_path / "run", tmp_path / "alone"
    options = ("--nnodes=1:2", "--max-restarts=3", "--rdzv-conf=last_call_timeout=1")
    slowly = ("--sharded", "--delay=0.5", "--iterations=120", "--timeout=10")
    # torchrun's agent tells its store to those who come first only: a later one waits for it.
    how = {"options": options, "env": {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}}
    first = hosts.torchrun(0, directory, *slowly, **how)
    until(lambda: reached(directory) >= 4)
    second = hosts.torchrun(1, directory, *slowly, **how)
    until((directory / "logs/rank-1.log").exists)  # both take part
    joined = reached(directory)
    until(lambda: reached(directory) >= joined + 4)
    for process in hosts.processes(hosts[1]):  # the host is gone, without a word
        os.kill(process, signal.SIGKILL)
    (text,) = ended(hosts, first, seconds=300)
    second.wait()
    assert first.returncode == 0, text[-3000:]
    result = outcome(directory, 0)
    assert result["iteration"] == 120
    assert result["began"][0] >= joined
    rows = [json.loads(line) for line in result["rows"].splitlines()]
    assert [row["iteration"] for row in rows] == [*range(1, 121)]
    # One rank, two, one: the weights and the samples are those of one rank all the time.
    processes.run_ranks(1, hosts.script, alone, "--sharded", "--iterations=120")
    expected = outcome(alone, 0)
    assert {n: sorted(read) for n, read in result["samples"].items()}.items() <= {
        n: sorted(read) for n, read in expected["samples"].items()
    }.items()
    for one, other in zip(result["values"], expected["values"], strict=True):
        assert abs(numpy.array(one) - numpy.array(other)).max() < 1e-12


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_faults_of_four_sharded_ranks_on_two_hosts_leave_the_same_run(hosts, processes, tmp_path):
    """A rank of one host raises, is killed or stands still; torchrun starts all four again."""
    alone, chance = tmp_path / "alone", random.Random(5)
    whole = ("--sharded", "--timeout=8")
    processes.run_ranks(4, hosts.script, alone, *whole)
    for number in range(int(os.environ.get("FAULTS", "6"))):
        directory = tmp_path / f"run-{number}"
        kind = ("raise", "kill", "stop")[number % 3]
        phase = chance.choice(("step", "collective", "evaluation", "copy", "writing"))
        fault = f"{chance.randrange(4)}:{kind}:{phase}:{chance.randint(2, 11)}"
        print(fault, flush=True)
        how = {
            "options": ("--nnodes=2", "--max-restarts=3", "--shutdown-timeout=1"),
            "ranks": 2,
        }
        started = [hosts.torchrun(n, directory, *whole, f"--fault={fault}", **how) for n in (0, 1)]
        texts = ended(hosts, *started, seconds=200)
        assert [each.returncode for each in started] == [0, 0], texts[0][-3000:]
        assert directory.with_name(f"{directory.name}.fault").exists()
        for rank in range(4):
            assert same(directory, rank) == same(alone, rank)


def same(directory, rank):
    return outcome(directory, rank) | {"began": [], "samples": {}}


def reached(directory):
    """The iteration of the newest checkpoint."""
    saved = checkpoints(directory).latest() if directory.is_dir() else None
    return 0 if saved is None else saved.manifest.iteration


@pytest.mark.slow
def test_a_host_with_a_folder_of_its_own_ends_the_run_on_both_before_the_first_iteration(
    hosts, tmp_path
):
    directory, own = tmp_path / "run", tmp_path / "own"
    directory.mkdir()
    own.mkdir()
    apart = f"mount --bind {own} {directory}"  # the same path, on a disk of the second host
    first = hosts.torchrun(0, directory, "--timeout=60")
    started = [first, hosts.torchrun(1, directory, "--timeout=60", setup=apart)]
    texts = ended(hosts, *started)
    assert all(each.returncode for each in started)
    for text in texts:
        assert f"rank 1 (first on {hosts[1].name}" in text, text[-3000:]
        assert f"does not see what rank 0 writes on {hosts[0].name}" in text
    assert not [*directory.glob("iteration-*"), *own.glob("iteration-*")]
    assert not [path for path in (*directory.iterdir(), *own.iterdir()) if path.name != "logs"]
