"""Seeds on two ranks."""

import json
from pathlib import Path

import torch

SCRIPT = Path(__file__).parent / "seeds_on_ranks.py"


def test_each_rank_can_draw_its_own_numbers_while_the_shuffle_stays_one(processes, tmp_path):
    processes.run_ranks(2, SCRIPT, tmp_path)
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first["drawn"]["False"] == second["drawn"]["False"]
    assert first["drawn"]["True"] != second["drawn"]["True"]
    torch.manual_seed(7)
    assert first["drawn"]["True"] == torch.rand(3).tolist()
    for own, other in zip(first["epochs"], second["epochs"], strict=True):
        assert sorted(own + other) == list(range(10))
    assert first["epochs"][0] != first["epochs"][1]
