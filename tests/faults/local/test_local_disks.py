"""Runs that save to the disks of their hosts: one disk is lost, and the run goes on exactly."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from torch import nn

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Local, LocalCheckpoint, checkpoints

SCRIPT = Path(__file__).parents[1] / "ranks/train.py"


def outcome(directory, rank):
    path = directory.with_name(f"{directory.name}.rank-{rank}.json")
    return json.loads(path.read_text())


def same(directory, alone, rank):
    """The same weights, optimizer, rows, draws; and samples, as far as the last start read any."""
    own, expected = outcome(directory, rank), outcome(alone, rank)
    samples = own.pop("samples")
    assert samples.items() <= expected.pop("samples").items()
    return own | {"began": []} == expected | {"began": []}


def run(processes, directory, disks, *arguments, count=2, code=None):
    local = f"--local={disks}/host-{{rank}}"
    return processes.run_ranks(count, SCRIPT, directory, local, *arguments, code=code)


def fails_and_goes_on(processes, tmp_path, fault, lost, *arguments, count=2):
    """A rank is killed, the disk of a host is lost, and the second start ends the run."""
    directory, disks = tmp_path / "run", tmp_path / "disks"
    run(processes, directory, disks, f"--fault={fault}", *arguments, count=count)
    assert directory.with_name("run.fault").exists()
    if lost is not None:
        shutil.rmtree(disks / f"host-{lost}")
    results = run(processes, directory, disks, *arguments, count=count, code=0)
    return directory, results


@pytest.mark.slow
def test_a_lost_disk_is_replaced_from_the_next_host_with_the_same_bits(processes, tmp_path):
    directory, results = fails_and_goes_on(processes, tmp_path, "1:kill:step:6", 1)
    processes.run_ranks(2, SCRIPT, tmp_path / "alone")
    assert "from the disks of the hosts" in results[0].stderr
    assert outcome(directory, 0)["began"][0] in (4, 5)  # the one under way may be whole, or not
    assert all(same(directory, tmp_path / "alone", rank) for rank in (0, 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "lost", "arguments"),
    [
        ("1:kill:writing:6", 0, ("--sharded",)),
        pytest.param("0:kill:manifest:7", 0, (), marks=pytest.mark.soak),
        pytest.param("2:kill:rename:5", 2, ("--sharded",), marks=pytest.mark.soak),
    ],
    ids=["writing", "manifest", "rename"],
)
def test_a_kill_in_the_middle_of_a_local_save_leaves_the_one_before_whole(
    processes, tmp_path, fault, lost, arguments
):
    count = 2 if lost < 2 else 3
    arguments = (*arguments, "--samples=6") if count == 3 else arguments
    directory, _ = fails_and_goes_on(processes, tmp_path, fault, lost, *arguments, count=count)
    processes.run_ranks(count, SCRIPT, tmp_path / "alone", *arguments)
    assert outcome(directory, 0)["began"][0] >= 3
    assert all(same(directory, tmp_path / "alone", rank) for rank in range(count))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_hosts_that_are_lost_at_random_leave_the_same_run(processes, tmp_path):
    chance = random.Random(3)
    for count in (2, 3):
        whole = ("--sharded", f"--samples={2 * count}")
        processes.run_ranks(count, SCRIPT, tmp_path / f"{count}/alone", *whole)
        for number in range(int(os.environ.get("TRIALS", "25"))):
            phase = chance.choice(("step", "collective", "copy", "writing", "manifest", "rename"))
            lost, place = chance.randrange(count), tmp_path / f"{count}/{number}"
            place.mkdir()
            fault = f"{lost}:kill:{phase}:{chance.randint(2, 11)}"
            print(count, fault, flush=True)
            directory, _ = fails_and_goes_on(processes, place, fault, lost, *whole, count=count)
            alone = tmp_path / f"{count}/alone"
            assert all(same(directory, alone, rank) for rank in range(count))


@pytest.mark.slow
def test_when_both_copies_are_lost_the_shared_directory_is_taken_with_a_warning(
    processes, tmp_path
):
    directory, disks = tmp_path / "run", tmp_path / "disks"
    run(processes, directory, disks, "--samples=6", "--fault=2:kill:step:11", count=3)
    for lost in (0, 1):  # rank 0 and its copy
        shutil.rmtree(disks / f"host-{lost}")
    results = run(processes, directory, disks, "--samples=6", count=3, code=0)
    assert "no host of this start has all of it" in results[0].stderr
    assert outcome(directory, 0)["began"][0] == 8


def test_another_number_of_copies_is_refused():
    with pytest.raises(ValueError, match="needs 1, for a copy on the next host, or 0"):
        Local("nvme", copies=2)
    for handlers, message in [
        ((Local("other/../run"), Checkpoint("run")), "name one directory"),
        ((Checkpoint("run"), Local("nvme")), "needs a Checkpoint after it"),
        ((Local("nvme"), LocalCheckpoint("run")), "needs a Checkpoint after it"),
    ]:
        with pytest.raises(ValueError, match=message):
            Engine(lambda state, batch: None, *handlers).run([1], max_epochs=1)


def test_one_process_resumes_from_its_disk_and_never_mixes_runs(tmp_path):
    def start(until, *, resume=True):
        local = Local(tmp_path / "nvme", when=Events.ITERATION_COMPLETED)
        end = Events.EPOCH_COMPLETED(every=99)
        engine = Engine(lambda state, batch: None, objects={"model": nn.Linear(1, 1)})
        engine.add(local, Checkpoint(tmp_path / "run", when=end, resume=resume))
        began = []
        engine.on(Events.STARTED)(lambda state: began.append(state.iteration))
        engine.run(range(20), max_iterations=until)
        return began[0]

    assert start(3) == 0
    assert [each.manifest.iteration for each in checkpoints(tmp_path / "nvme")] == [2, 3]
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(tmp_path / "nvme", tmp_path / "stale")
    with pytest.raises(FileExistsError, match="holds checkpoints of an earlier run there"):
        start(5, resume=None)
    assert start(5) == 3
    for each in checkpoints(tmp_path / "nvme"):  # a damaged file: the one before is taken
        if each.manifest.iteration == 5:
            (each.path / "rank-00000.json").write_text("{}")
    assert start(6) == 4
    shutil.rmtree(tmp_path / "nvme")
    shutil.copytree(tmp_path / "stale", tmp_path / "nvme")
    assert start(7) == 4  # what an earlier start left on a disk is not taken
