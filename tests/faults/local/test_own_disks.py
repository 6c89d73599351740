"""Hosts that share no directory: each has a disk, and copies its files to a store by itself."""

import json
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

from camshaft import Engine, Events, supervised
from camshaft.handlers import Checkpoint, LocalCheckpoint, Mirror, best, checkpoints, fetch
from camshaft.handlers.checkpoint.directory import scan

from .test_local_disks import SCRIPT, outcome, same

pytest.importorskip("fsspec", reason='needs pip install "camshaft[mirror]"')


def told(tmp_path, store=True, host="{rank}"):
    """The arguments of a job whose ranks have a disk each, or share one."""
    disks = f"--local={tmp_path}/disks/host-{host}"
    more = [f"--store=file:{tmp_path}/store"] if store else []
    return tmp_path / "run", "--own-disks", disks, *more


@pytest.fixture
def start(processes, tmp_path):
    """Runs a job of so many hosts, each of one rank; gives what each rank has printed."""

    def run(*arguments, count=2, code=0, store=True, host="{rank}"):
        told_too = told(tmp_path, store, host)
        return processes.run_ranks(count, SCRIPT, *told_too, *arguments, code=code)

    return run


@pytest.fixture
def start_ranks(processes, tmp_path):
    """Starts a job of two hosts."""
    return lambda *arguments: processes.start_ranks(2, SCRIPT, *told(tmp_path), *arguments)


@pytest.fixture
def is_same(processes, tmp_path):
    """True if the job has ended as one without a fault, on a shared directory.

    With the host of rank 0, the rows are lost that came after the last copy to the store.
    """

    def compare(*arguments, count=2, lost=()):
        directory, alone = tmp_path / "run", tmp_path / "alone"
        processes.run_ranks(count, SCRIPT, alone, *arguments)
        if 0 in lost:
            path = tmp_path / "run.rank-0.json"
            found, whole = json.loads(path.read_text()), outcome(alone, 0)["rows"].splitlines()
            rows = found["rows"].splitlines()
            assert rows[-1] == whole[-1]
            assert {*rows} <= {*whole}
            path.write_text(json.dumps(found | {"rows": outcome(alone, 0)["rows"]}))
        return all(same(directory, alone, rank) for rank in range(count))

    return compare


def names(path):
    return {each.name for each in path.iterdir()}


def stored(tmp_path):
    """The iterations of which the store has all files, below the prefixes of the hosts."""
    found = {}
    for place in (tmp_path / "store").glob("host-*"):
        for each in checkpoints(place):
            whole, here = found.setdefault(each.manifest.iteration, (each.manifest.files, set()))
            here |= names(each.path) & whole.keys()
    return sorted(n for n, (whole, here) in found.items() if whole.keys() == here)


def began(tmp_path):
    return outcome(tmp_path / "run", 0)["began"][0]


def test_each_host_copies_its_own_files_and_only_those(start, is_same, tmp_path):
    results = start()
    assert is_same()
    parts = [scan(tmp_path / f"store/host-{n}")[0][-1] for n in (0, 1)]
    assert parts[0].manifest == parts[1].manifest
    assert parts[0].manifest.iteration == 12
    here = [names(each.path) for each in parts]
    assert here[1] == {"rank-00001.json", "rank-00001.safetensors", "manifest.json"}
    assert here[0] ^ here[1] == {*parts[0].manifest.files}
    assert names(tmp_path / "store") == {"RUN", "rows.jsonl", "host-0", "host-1"}
    assert fetch(f"file:{tmp_path}/store", tmp_path / "here") == next(
        (tmp_path / "here").glob("i*")
    )
    assert checkpoints(tmp_path / "here").latest().manifest.iteration == 12
    assert all("holds all of the run" in each.stderr for each in results)
    for host in (0, 1):
        here = checkpoints(tmp_path / f"disks/host-{host}")
        assert [each.manifest.iteration for each in here] == [11, 12]
        assert not [*(tmp_path / f"disks/host-{host}").glob(".tmp-*")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "lost", [*(pytest.param(n, marks=pytest.mark.soak) for n in [(0,), (1,)]), (), (0, 1)], ids=str
)
def test_a_start_takes_what_is_left(start, is_same, tmp_path, lost):
    start("--fault=1:kill:step:9", code=None)
    for each in lost:
        shutil.rmtree(tmp_path / f"disks/host-{each}")
    there = stored(tmp_path)
    start()
    if len(lost) < 2:
        assert began(tmp_path) in (7, 8)  # the save under way may be whole, or not
    else:  # a process that copies may have outlived its rank, and copied one more
        assert (there[-1] if there else 0) <= began(tmp_path) <= 8
    assert is_same(lost=lost)


@pytest.mark.slow
def test_without_a_store_the_next_host_has_all(start, is_same, tmp_path):
    start("--fault=1:kill:step:9", code=None, store=False)
    shutil.rmtree(tmp_path / "disks/host-1")
    start(store=False)
    assert began(tmp_path) in (7, 8)
    assert is_same()


@pytest.mark.slow
def test_rank_0_may_be_on_another_host_which_gets_the_log_of_the_store(start, is_same, tmp_path):
    start("--iterations=5")
    disks = tmp_path / "disks"
    for old, new in (("host-0", "x"), ("host-1", "host-0"), ("x", "host-1")):
        (disks / old).rename(disks / new)
    start("--iterations=9")
    assert began(tmp_path) == 5
    for old, new in (("host-0", "x"), ("host-1", "host-0"), ("x", "host-1")):
        (disks / old).rename(disks / new)
    start()  # the first host has an old log, of an earlier start
    assert began(tmp_path) == 9
    assert is_same()


@pytest.mark.slow
def test_any_number_of_hosts_goes_on_and_a_disk_of_before_is_ignored(start, tmp_path):
    sharded = ("--sharded", "--samples=12")
    start(*sharded, "--iterations=4", count=3)
    shutil.copytree(tmp_path / "disks/host-2", tmp_path / "old")
    start(*sharded, "--iterations=8", count=2)
    assert began(tmp_path) == 4
    shutil.rmtree(tmp_path / "disks/host-2")
    (tmp_path / "old").rename(tmp_path / "disks/host-2")
    start(*sharded, count=3)
    assert began(tmp_path) == 8
    rows = [json.loads(line) for line in outcome(tmp_path / "run", 0)["rows"].splitlines()]
    assert [each["iteration"] for each in rows] == [*range(1, 13)]
    path = fetch(f"file:{tmp_path}/store", tmp_path / "here")
    assert checkpoints(tmp_path / "here").latest().path == path


@pytest.mark.slow
@pytest.mark.parametrize(
    "lost", ["0", *(pytest.param(n, marks=pytest.mark.soak) for n in ("1", "all"))]
)
def test_hosts_may_have_several_ranks_in_any_order(start, is_same, tmp_path, lost):
    several = {"count": 4, "host": "{half}"}
    start("--fault=3:kill:step:9", code=None, **several)
    there = stored(tmp_path)
    for host in "01" if lost == "all" else lost:
        shutil.rmtree(tmp_path / f"disks/host-{host}")
    start(**several)
    if lost != "all":
        assert began(tmp_path) in (7, 8)
    else:
        assert began(tmp_path) == (there[-1] if there else 0)
    assert stored(tmp_path)[-1] == 12
    assert is_same(count=4, lost=[0] if lost == "0" else [])


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.soak), 1])
@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param((3, 12, 21), marks=pytest.mark.slow),
        pytest.param(range(1, 200), marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
    ids=["some", "all"],
)
def test_a_kill_at_any_operation_of_a_start_leaves_all_for_the_next(
    processes, start, tmp_path, rank, numbers
):
    start("--iterations=5")
    shutil.rmtree(tmp_path / "disks/host-1")  # it gets its part from the other host
    for name in ("disks", "store"):
        (tmp_path / name).rename(tmp_path / f"{name}-before")
    processes.run_ranks(2, SCRIPT, tmp_path / "alone")
    for number in numbers:
        for name in ("disks", "store"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
            shutil.copytree(tmp_path / f"{name}-before", tmp_path / name)
        marker = tmp_path / "run.fault"
        marker.unlink(missing_ok=True)
        start(f"--fault={rank}:kill:begin {number}:99", "--iterations=6", code=None)
        if outcome(tmp_path / "run", 0)["iteration"] == 6 and number > 20:
            return  # the start has fewer operations
        assert marker.exists()
        start()
        assert began(tmp_path) >= 5
        assert all(same(tmp_path / "run", tmp_path / "alone", each) for each in (0, 1))
        (tmp_path / "run.rank-0.json").write_text('{"iteration": 0}')


@pytest.mark.slow
def test_a_damaged_copy_is_passed_over_for_one_that_is_whole(start, is_same, tmp_path):
    start("--iterations=8")
    shutil.rmtree(tmp_path / "disks")
    *_, good, last = stored(tmp_path)
    (newest,) = (tmp_path / "store/host-1").glob(f"iteration-{last:010}.*/rank-00001.json")
    newest.write_bytes(newest.read_bytes()[::-1])
    results = start()
    assert any("is damaged: its checksum is another one" in each.stderr for each in results)
    assert began(tmp_path) == good < 8
    assert is_same()


@pytest.mark.slow
def test_a_process_that_copies_may_be_killed_on_any_host(start_ranks, is_same, tmp_path):
    with ExitStack() as stack:
        ranks = [stack.enter_context(each) for each in start_ranks("--delay=0.8")]
        while not stored(tmp_path) and ranks[0].poll() is None:
            time.sleep(0.1)
        for each in (*ranks, *reversed(ranks)):
            time.sleep(1)
            for child in psutil.Process(each.pid).children():
                if "mirror.copying" in " ".join(child.cmdline()):
                    child.kill()
        results = [each.result() for each in ranks]
    assert [each.returncode for each in results] == [0, 0], results[0].stderr[-3000:]
    assert all("had ended; another goes on" in each.stderr for each in results)
    assert stored(tmp_path)[-1] == 12
    assert is_same()


@pytest.mark.slow
def test_a_host_whose_disk_is_full_costs_one_save_and_no_time(processes, tmp_path):
    script = Path(__file__).with_name("full_on_one_host.py")
    results = processes.run_ranks(3, script, tmp_path)
    assert all("No space left on device" in each.stderr for each in results[::2])
    for rank in range(3):
        here = checkpoints(tmp_path / f"host-{rank}")
        assert [each.manifest.iteration for each in here] == [3, 4]
        assert (tmp_path / f"host-{rank}/LATEST").read_text() == "iteration-0000000004\n"
    assert all(float(each.stdout) < 20 for each in results)  # the timeout is a minute


@pytest.mark.slow
def test_one_process_is_one_host_and_never_mixes_runs(tmp_path):
    def run(until, *, name="run", **options):
        engine = Engine(lambda state, batch: None, objects={"model": nn.Linear(1, 1)})
        saving = {"when": Events.ITERATION_COMPLETED}
        engine.add(
            Mirror(f"file:{tmp_path}/store", interval=0.05),
            LocalCheckpoint(tmp_path / name, **{"resume": True} | saving | options),
        )
        began = []
        engine.on(Events.STARTED)(lambda state: began.append(state.iteration))
        state = engine.run(range(20), max_iterations=until)
        engine.run(range(20), state=state, max_iterations=until + 1)  # the same run, carried on
        return began[0]

    assert run(3) == 0
    assert run(6) == 4
    assert run(9, name="elsewhere") == 7  # an empty disk: from the store
    assert [each.manifest.iteration for each in checkpoints(tmp_path / "elsewhere")] == [9, 10]
    with pytest.raises(FileExistsError, match="holds checkpoints of an earlier run"):
        run(3, resume=None)
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(FileExistsError, match="a host holds checkpoints of an earlier run there"):
        run(3, resume=None)
    assert run(3, resume=None, start_over=True) == 0
    assert names(tmp_path / "run/earlier.1") >= {"iteration-0000000007"}
    assert stored(tmp_path)[-1] == 4
    with pytest.raises(FileExistsError, match="another run than"):  # the store has a new one
        run(12, name="elsewhere")


def test_an_evaluation_of_a_part_says_where_the_rest_is(tmp_path):
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(LocalCheckpoint(tmp_path))
    pairs = [(torch.ones(1, 1), torch.ones(1, 1))]
    engine.run(pairs, max_epochs=1)
    engine.evaluate(pairs, checkpoint="latest")
    (checkpoints(tmp_path)[-1].path / "model.safetensors").unlink()  # as if another host had it
    with pytest.raises(ValueError, match="the files of this host's ranks alone"):
        engine.evaluate(pairs, checkpoint="latest")


def test_starting_over_beside_a_run_that_goes_on_moves_the_old_checkpoints_aside(tmp_path):
    for _ in range(2):
        engine = Engine(lambda state, batch: None, objects={"model": nn.Linear(1, 1)})
        beside = LocalCheckpoint(tmp_path / "beside", start_over=True)
        engine.add(beside, Checkpoint(tmp_path / "run", resume=True))
        state = engine.run(range(2), max_epochs=1)
    assert state.iteration == 2
    assert names(tmp_path / "beside/earlier.1") >= {"iteration-0000000002"}


def test_what_hosts_without_a_shared_directory_cannot_do_is_refused(tmp_path):
    engine = Engine(lambda state, batch: None)
    stores = [Mirror(f"file:{tmp_path}/{name}") for name in ("one", "two")]
    engine.add(*stores, LocalCheckpoint(tmp_path / "run"))
    with pytest.raises(ValueError, match="needs one Mirror in its engine"):
        engine.run([1], max_epochs=1)
    for resume in ("best", "."):
        with pytest.raises(ValueError, match="resume from the newest checkpoint alone"):
            LocalCheckpoint("run", keep=best(1, "loss"), resume=resume)
