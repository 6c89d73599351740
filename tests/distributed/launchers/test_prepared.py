"""Models, optimizers and loaders that accelerate or Fabric has prepared, on two ranks."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("prepared_on_ranks.py")


@pytest.mark.parametrize("library", ["accelerate", "fabric"])
def test_the_run_is_that_of_the_librarys_own_loop_and_resumes_exactly(processes, tmp_path, library):
    processes.run_ranks(2, SCRIPT, library, tmp_path, "compare")
