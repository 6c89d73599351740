"""Seeds on two ranks."""

import json
import subprocess
import sys
from pathlib import Path

import torch

SCRIPT = Path(__file__).parent / "seeds_on_ranks.py"


def test_each_rank_can_draw_its_own_numbers_while_the_shuffle_stays_one(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--master-port=0", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    result = subprocess.run(
        [*command, SCRIPT, tmp_path], capture_output=True, text=True, timeout=240
    )
    assert result.returncode == 0, result.stderr[-4000:]
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first["drawn"]["False"] == second["drawn"]["False"]
    assert first["drawn"]["True"] != second["drawn"]["True"]
    torch.manual_seed(7)
    assert first["drawn"]["True"] == torch.rand(3).tolist()
    for own, other in zip(first["epochs"], second["epochs"], strict=True):
        assert sorted(own + other) == list(range(10))
    assert first["epochs"][0] != first["epochs"][1]
