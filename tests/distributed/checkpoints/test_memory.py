"""What a save and a load of a sharded model take of memory."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("memory_on_ranks.py")
MIB = 2**20


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
def test_no_rank_holds_more_than_its_shards(processes, tmp_path):
    """A model of 256 MiB in layers of 16, so each of two ranks has 128 in shards of 8."""
    results = processes.run_ranks(2, SCRIPT, tmp_path, 2048, 16)
    for each in map(json.loads, (result.stdout for result in results)):
        assert each["saved"] < 40 * MIB
        assert each["loaded"] < 64 * MIB  # less than half a shard, however many threads read
