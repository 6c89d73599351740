"""Replicas of one run, any of which are killed: the run is the one in which nothing was."""

import json
import random
import time
from pathlib import Path

import pytest

pytest.importorskip("torchft")

SCRIPT = Path(__file__).with_name("train.py")
LIGHTHOUSE = """
    import os, time
    from torchft.coordination import LighthouseServer
    server = LighthouseServer(
        bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=5000, quorum_tick_ms=10,
        heartbeat_timeout_ms=700,
    )
    print("at", server.address().rsplit(":", 1)[1], flush=True)
    for number in (1, 2):  # nobody reads what it tells of each quorum
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    time.sleep(3600)
"""
LENGTH, SAMPLES, BATCH, TRIALS = 36, 75, 8, 100
PLACES = ["forward", "reduced", "commit", "row", "save", "part", "join"]
SOME = [("reduced", 1), ("save", 0), ("join", 1)]
"""Of these and a rank that is lost: which the slow tests try; the others are soak tests."""


@pytest.fixture(scope="module")
def lighthouse(processes):
    with processes.start(LIGHTHOUSE) as process:
        words = next(line for line in process.stdout if line.startswith("at "))
        yield f"http://127.0.0.1:{words.split()[1]}"
        process.kill()


@pytest.fixture
def train(processes, lighthouse, tmp_path):
    """Runs replicas to their end; one that is killed is started again. Gives what they print.

    If a rank is killed, the other ranks of its replica end by themselves.
    """

    def run(count, place="", at=0, who=0, *, rank=0, size=1, folder=tmp_path):
        folder.mkdir(exist_ok=True)
        (folder / "run").mkdir(exist_ok=True)

        def start(number, *arguments):
            given = (lighthouse, folder / "run", f"r{number}", count, *arguments)
            if size == 1:
                return [processes.start(SCRIPT, *given)]
            return processes.start_ranks(size, SCRIPT, *given)

        kill = ("--kill", place, at, "--rank", rank) if place else ()
        running = {n: start(n, *(kill if n == who else ())) for n in range(count)}
        said, killed = {}, 0
        while running:
            for number, started in list(running.items()):
                if any(each.poll() is None for each in started):
                    continue
                del running[number]
                results = [each.result() for each in started]
                for each in started:
                    each.__exit__(None, None, None)
                if not any(each.returncode for each in results):
                    said[number] = [json.loads(e.stdout.splitlines()[-1]) for e in results]
                else:
                    errors = "\n".join(each.stderr[-4000:] for each in results)
                    assert not killed, errors
                    assert results[rank].returncode == -9, errors
                    killed += 1
                    running[number] = start(number)
            time.sleep(0.005)
        return said

    return run


def rows_of(folder):
    return [json.loads(line) for line in (folder / "run" / "rows.jsonl").read_text().splitlines()]


def check_samples(folder):
    """Whoever has made a step used the same samples, and an epoch uses each sample once."""
    known, steps = {}, {}
    for path in folder.glob("samples.*"):
        for line in path.read_text().splitlines():
            iteration, samples = json.loads(line)
            assert known.setdefault((iteration, path.suffix), samples) == samples
    for (iteration, _), samples in known.items():
        steps.setdefault(iteration, []).extend(samples)
    assert sorted(steps) == [*range(1, LENGTH + 1)]
    each = -(-SAMPLES // BATCH)
    for begin in range(1, LENGTH - each + 2, each):
        epoch = [sample for number in range(begin, begin + each) for sample in steps[number]]
        assert sorted(epoch) == [*range(SAMPLES)]


@pytest.fixture(scope="module")
def alone(processes, lighthouse, tmp_path_factory):
    """What one replica makes alone: the outcome, and its rows."""
    folder = tmp_path_factory.mktemp("alone")
    result = processes.run(SCRIPT, lighthouse, folder / "run", "r0", 1)
    return [json.loads(result.stdout.splitlines()[-1])], rows_of(folder)


@pytest.fixture(scope="module")
def pair(processes, lighthouse, tmp_path_factory):
    """The same of one replica of two ranks."""
    folder = tmp_path_factory.mktemp("pair")
    results = processes.run_ranks(2, SCRIPT, lighthouse, folder / "run", "r0", 1)
    return [json.loads(each.stdout.splitlines()[-1]) for each in results], rows_of(folder)


def check(said, alone, folder, count):
    outcome, rows = alone
    assert list(said.values()) == [outcome] * count
    assert rows_of(folder) == rows
    assert [row["iteration"] for row in rows] == [*range(1, LENGTH + 1)]
    check_samples(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        "forward",
        "commit",
        "join",
        *(pytest.param(each, marks=pytest.mark.soak) for each in ("reduced", "row", "save")),
    ],
)
def test_a_run_with_a_lost_replica_is_the_run_of_one(train, alone, tmp_path, place):
    who = int(place == "join")
    check(train(2, place, 13, who), alone, tmp_path, 2)


@pytest.mark.slow
def test_three_replicas_make_the_same_sums_and_lose_one(train, alone, tmp_path):
    check(train(3, "forward", 11, 1), alone, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "rank"),
    [
        pytest.param(place, rank, marks=() if (place, rank) in SOME else pytest.mark.soak)
        for place in PLACES
        for rank in (0, 1)
    ],
)
def test_a_replica_of_two_ranks_is_lost_by_one_of_them(train, pair, tmp_path, place, rank):
    if place == "save" and rank:
        pytest.skip("only the first rank names a checkpoint")
    who = int(place == "join")
    check(train(2, place, 13, who, rank=rank, size=2), pair, tmp_path, 2)


@pytest.mark.soak
def test_three_replicas_of_two_ranks_lose_one(train, pair, tmp_path):
    check(train(3, "forward", 11, 1, rank=1, size=2), pair, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_a_run_whose_replicas_are_all_killed_resumes_from_its_checkpoint(
    processes, lighthouse, train, alone, pair, tmp_path, size
):
    folder = tmp_path / "run"
    folder.mkdir()
    given = [(lighthouse, folder, f"r{n}", 2, "--pause", 0.02) for n in range(2)]
    if size == 1:
        started = [processes.start(SCRIPT, *each) for each in given]
    else:
        started = [one for each in given for one in processes.start_ranks(size, SCRIPT, *each)]
    while not (folder / "rows.jsonl").exists() or len(rows_of(tmp_path)) < 17:
        assert all(each.poll() is None for each in started)
        time.sleep(0.01)
    for each in started:
        each.kill()
    for each in started:
        with each:
            each.wait()
    check(train(2, size=size), alone if size == 1 else pair, tmp_path, 2)


ODD = """
    import sys, torch
    from torch import nn
    from camshaft import supervised
    from camshaft.handlers import Replicas

    what = sys.argv[2]
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4) if what == "norm" else nn.Tanh())
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss)
    engine.add(Replicas(sys.argv[1], shards=2))
    batch = torch.ones(4, 4), torch.ones(4, 4)
    if what == "names":
        batch = {"input": batch[0], "labels": batch[1], "names": ["a", "b", "c", "d"]}
    engine.run([batch], max_epochs=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "said"), [("norm", "Take GroupNorm"), ("names", "needs tensors of one length")]
)
def test_what_would_depend_on_who_computes_a_shard_is_refused(processes, lighthouse, what, said):
    assert said in processes.run(ODD, lighthouse, what, code=1).stderr


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("size", [1, 2])
def test_replicas_killed_at_random_lose_nothing(train, alone, pair, tmp_path, size):
    draw = random.Random(7)
    for number in range(TRIALS):
        count, place = (
            draw.choice([2, 3, 4] if size == 1 else [2, 3]),
            draw.choice(["any", "any", *PLACES]),
        )
        at, who = draw.randrange(2, LENGTH), draw.randrange(count)
        rank, folder = draw.randrange(size), tmp_path / str(number)
        said = train(count, place, at, who, rank=rank, size=size, folder=folder)
        check(said, alone if size == 1 else pair, folder, count)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "options", "said"),
    [
        (2, (), "with equally many ranks"),
        pytest.param(1, ("--shards", 3), "give all of them one number", marks=pytest.mark.soak),
    ],
)
def test_a_replica_of_other_settings_ends_and_the_run_goes_on(
    processes, lighthouse, alone, tmp_path, size, options, said
):
    given = (SCRIPT, lighthouse, tmp_path / "run")
    with processes.start(*given, "r0", 1, "--pause", 0.3) as running:
        while not (tmp_path / "run" / "rows.jsonl").exists():
            assert running.poll() is None
            time.sleep(0.01)
        odd = (*given, "odd", 1, *options)
        for each in (
            processes.run_ranks(size, *odd, code=1) if size > 1 else [processes.run(*odd, code=1)]
        ):
            assert said in each.stderr or "another rank could not" in each.stderr
        outcome = json.loads(running.result().stdout.splitlines()[-1])
    assert ([outcome], rows_of(tmp_path)) == alone


@pytest.mark.slow
def test_replicas_that_read_different_data_end_at_their_first_step_together(
    processes, lighthouse, tmp_path
):
    (tmp_path / "run").mkdir()
    said = [
        processes.start(SCRIPT, lighthouse, tmp_path / "run", name, 2, *turned)
        for name, turned in (("r0", ()), ("r1", ("--turned",)))
    ]
    for process in said:
        with process:
            result = process.result()
        assert result.returncode == 1
        # On a busy machine, one may have taken some steps before the other was there.
        assert "the replicas compute different steps" in result.stderr
