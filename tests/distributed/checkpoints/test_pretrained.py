"""Pretrained weights for sharded models: each rank reads its own part."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("pretrained_on_ranks.py")
MODEL = 4096 * 4096 * 4


@pytest.mark.slow
def test_each_rank_reads_its_part_of_pretrained_weights_and_verifies_a_part(processes, tmp_path):
    results = processes.run_ranks(2, SCRIPT, tmp_path)
    for result in results:
        told = json.loads(result.stdout)
        # Of 64 MiB: the pages of its own half, and a copy of that; the whole takes 64 and a copy.
        assert told["safetensors"] < MODEL * 1.2
        assert told["pt"] < MODEL * 0.8  # is mapped, and copied to its place
        for name in ("saved", "path", "folder"):
            is_right, read = told[name]
            assert is_right, name
            assert told["size"] * 0.3 < read < told["size"] * 0.8, name
        assert told["passed over"]
        assert "is damaged: its checksum" in told["refused"] or result is results[1]
