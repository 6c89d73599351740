"""Models, optimizers and loaders that accelerate or Fabric has prepared, on two ranks."""

from pathlib import Path
from shutil import copytree

import pytest

from camshaft.handlers import checkpoints

SCRIPT = Path(__file__).with_name("prepared_on_ranks.py")


LIBRARIES = [pytest.param("accelerate", marks=pytest.mark.slow), "fabric"]  # the one is quick


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_run_is_that_of_the_librarys_own_loop_and_resumes_exactly(processes, tmp_path, library):
    processes.run_ranks(2, SCRIPT, library, tmp_path, "compare")


@pytest.mark.parametrize(
    "library",
    [
        pytest.param("accelerate", marks=pytest.mark.soak),
        pytest.param("fabric", marks=pytest.mark.slow),
    ],
)
def test_a_run_whose_rank_was_killed_in_mid_epoch_goes_on_to_the_same_bits(
    processes, tmp_path, library
):
    processes.run_ranks(2, SCRIPT, library, tmp_path / "cut", "kill", code=None)
    assert len(checkpoints(tmp_path / "cut")) == 2
    assert checkpoints(tmp_path / "cut")[-1].manifest.iteration == 6
    copytree(tmp_path / "cut", tmp_path / "other")
    first, _ = processes.run_ranks(2, SCRIPT, library, tmp_path / "cut", "resume")
    processes.run_ranks(2, SCRIPT, library, tmp_path / "whole", "whole")
    cut, whole = (checkpoints(tmp_path / name).latest() for name in ("cut", "whole"))
    assert cut.path.name == whole.path.name
    for name in ("model.safetensors", "train.safetensors"):
        assert (cut.path / name).read_bytes() == (whole.path / name).read_bytes()
    # As many samples a batch over all ranks, so the same ones on others.
    other, *_ = processes.run_ranks(4, SCRIPT, library, tmp_path / "other", "resume")
    assert other.stdout == first.stdout
    assert other.stdout.startswith("7 [")
    assert "does not tell" not in other.stderr
