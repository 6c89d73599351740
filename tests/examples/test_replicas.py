"""The example that kills a replica: its own comparison of weights, and its rows."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torchft")

REPLICAS = Path(__file__).parents[2] / "examples" / "replicas.py"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_it_loses_a_replica_and_has_the_weights_of_the_run_that_lost_none(processes, tmp_path):
    given = ("--directory", tmp_path, "--max-epochs", 4, "--kill-at", 20)
    result = processes.run(REPLICAS, *given, fresh=True)
    killed = re.search(r"one rank of a replica is killed in iteration (\d+)", result.stdout)
    assert killed
    assert 20 <= int(killed[1]) < 72
    assert "72 rows, and the weights of the run that nobody has killed" in result.stdout
    for name in ("one", "two"):
        lines = (tmp_path / name / "rows.jsonl").read_text().splitlines()
        assert [json.loads(line)["iteration"] for line in lines] == [*range(1, 73)]
