"""Checkpoints of sharded models, written by some ranks and read by others."""

import json
import shutil
from pathlib import Path

import pytest

from camshaft.handlers.checkpoint import checkpoints

SCRIPT = Path(__file__).with_name("train_on_ranks.py")
FORMS = ["1 plain", "2 fsdp", "3 fsdp", "4 fsdp", "4 hsdp", "4 tensor", "2 ddp"]
"""Numbers of ranks, and how the model lies on them."""


def trained(processes, directory, form, *words):
    count, kind = form.split()
    if kind == "plain":
        return json.loads(processes.run(SCRIPT, directory, kind, *words).stdout)
    return json.loads(processes.run_ranks(int(count), SCRIPT, directory, kind, *words)[0].stdout)


def assert_close(one, other):
    assert one.keys() == other.keys()
    for name, values in one.items():
        for a, b in zip(values, other[name], strict=True):
            assert abs(a - b) < 1e-12, name


def test_a_sharded_run_resumes_to_the_same_bits(processes, tmp_path):
    whole = trained(processes, tmp_path / "whole", "2 fsdp", 8)
    part = trained(processes, tmp_path / "parts", "2 fsdp", 6)
    rest = trained(processes, tmp_path / "parts", "2 fsdp", 8)
    assert rest["loaded"] == part["end"]
    assert rest["end"] == whole["end"]
    saved = checkpoints(tmp_path / "parts").latest()
    assert [name for name in saved.manifest.files if name.startswith("rank-")] == [
        *("rank-00000.json", "rank-00000.safetensors"),
        *("rank-00001.json", "rank-00001.safetensors"),
    ]


@pytest.mark.slow
def test_shards_on_one_rank_alone_are_those_that_were_saved(processes, tmp_path):
    part = trained(processes, tmp_path, "1 fsdp", 6)
    assert trained(processes, tmp_path, "1 fsdp", 8)["loaded"] == part["end"]


@pytest.mark.slow
def test_a_run_with_frozen_weights_goes_on_on_another_mesh(processes, tmp_path):
    whole = trained(processes, tmp_path / "whole", "4 tensor", 8, "frozen")
    part = trained(processes, tmp_path / "run", "4 tensor", 6, "frozen")
    rest = trained(processes, tmp_path / "run", "1 plain", 8, "frozen")
    assert rest["loaded"] == part["end"]
    assert_close(rest["end"], whole["end"])


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("6 odd", marks=pytest.mark.slow),
        pytest.param("8 odd", marks=pytest.mark.soak),
    ],
)
def test_sizes_that_divide_by_no_mesh_go_on_to_the_same_bits_and_on_any_ranks(
    processes, tmp_path, form
):
    whole = trained(processes, tmp_path / "whole", form, 6)
    part = trained(processes, tmp_path / "parts", form, 3)
    shutil.copytree(tmp_path / "parts", tmp_path / "same")
    rest = trained(processes, tmp_path / "same", form, 6)
    assert rest["loaded"] == part["end"]
    assert rest["end"] == whole["end"]
    for stop, other in ((6, "4 odd"), (9, "1 plain"), (12, form)):
        before, part = part, trained(processes, tmp_path / "parts", other, stop)
        assert part["loaded"] == before["end"], other
        if stop == 6:
            assert_close(part["end"], whole["end"])


@pytest.mark.parametrize(
    ("meshes", "sizes"),
    [(1, [1, 7]), pytest.param(8, [*range(10), 13, 33], marks=pytest.mark.soak)],
)
def test_real_shards_of_any_size_are_written_and_read_on_simulated_ranks(processes, meshes, sizes):
    script = Path(__file__).with_name("simulated_on_ranks.py")
    result = processes.run(script, meshes, *sizes)
    assert result.stdout.split() == ["same"] * meshes


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("4 tensor", marks=pytest.mark.slow),
        *(pytest.param(each, marks=pytest.mark.soak) for each in ("1 plain", "4 fsdp", "4 hsdp")),
    ],
)
def test_any_number_of_ranks_and_any_mesh_goes_on(processes, tmp_path, written):
    whole = trained(processes, tmp_path / "whole", written, 8)
    part = trained(processes, tmp_path / "parts", written, 6)
    for number, form in enumerate(FORMS):
        directory = tmp_path / str(number)
        shutil.copytree(tmp_path / "parts", directory)
        rest = trained(processes, directory, form, 8)
        assert rest["loaded"] == part["end"], form  # to the last bit
        (assert_close if form != written else _assert_equal)(rest["end"], whole["end"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "kind"), [(2, "fsdp"), pytest.param(4, "hsdp", marks=pytest.mark.soak)]
)
def test_with_muon_killed_in_mid_epoch_it_goes_on_to_the_same_bits(
    processes, tmp_path, count, kind
):
    def run(name, killed_at=0):
        script, code = SCRIPT.with_name("muon_on_ranks.py"), -9 if killed_at else 0
        said = processes.run_ranks(count, script, tmp_path / name, kind, killed_at, code=code)
        return None if killed_at else json.loads(said[0].stdout)

    whole = run("whole")
    run("parts", killed_at=5)  # of 9, three an epoch
    rest = run("parts")
    assert rest["at"] == 4
    assert "muon.3.momentum_buffer" in rest["loaded"]
    assert rest["end"] == whole["end"]
    if kind == "fsdp":  # so says the page: two matrices have more rows than columns, two have fewer
        assert whole["sent"] == {"muon": 2 * 11 + 2 * 16, "adamw": 0}


@pytest.fixture(scope="module")
def uninterrupted(processes, tmp_path_factory):
    return trained(processes, tmp_path_factory.mktemp("whole"), "2 fsdp", 8)


@pytest.fixture(scope="module")
def until_the_first_save(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("begun")
    trained(processes, directory, "2 fsdp", 3)
    return directory


def killed(processes, directory, rank, number):
    """Train on two ranks, of which one is killed at an operation of a save; True if it was."""
    word = f"kill={rank}:{number}"
    results = processes.run_ranks(2, SCRIPT, directory, "fsdp", 8, word, code=None)
    return results[rank].returncode == -9


def check_killed(processes, directory, rank, number, uninterrupted):
    was = killed(processes, directory, rank, number)
    newest = checkpoints(directory).latest()  # every file is read
    assert newest.manifest.iteration in (3, 6)
    rest = trained(processes, directory, "2 fsdp", 8)
    assert rest["end"] == uninterrupted["end"]
    assert {path.name for path in directory.iterdir()} == {
        *("LATEST", "iteration-0000000003", "iteration-0000000006")
    }
    return was


@pytest.mark.slow
# Whichever rank comes first makes the directory, so rank 1 has two operations, or three.
@pytest.mark.parametrize(("rank", "number"), [(0, 9), (1, 2)])
def test_killed_in_a_save_the_run_resumes_to_the_same_bits(
    processes, until_the_first_save, uninterrupted, tmp_path, rank, number
):
    run = shutil.copytree(until_the_first_save, tmp_path / "run")
    assert check_killed(processes, run, rank, number, uninterrupted)


@pytest.mark.soak
@pytest.mark.parametrize("rank", [0, 1])
def test_killed_at_any_operation_of_a_save_it_resumes_to_the_same_bits(
    processes, until_the_first_save, uninterrupted, tmp_path, rank
):
    number = 0
    while True:
        number += 1
        run = shutil.copytree(until_the_first_save, tmp_path / str(number))
        if not check_killed(processes, run, rank, number, uninterrupted):
            break
    assert number > (10 if rank == 0 else 2)


def _assert_equal(one, other):
    assert one == other
