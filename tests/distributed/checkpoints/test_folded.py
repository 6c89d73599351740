"""Checkpoints of ranks with folded checksums and a manifest in columns."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("folded_on_ranks.py")


@pytest.mark.slow
def test_a_very_large_checkpoint_of_ranks_is_resumed_and_its_damage_passed_over_on_any_ranks(
    processes, tmp_path
):
    def run(count, name, until, how="small"):
        results = processes.run_ranks(count, SCRIPT, tmp_path / name, until, how)
        told = [json.loads(each.stdout) for each in results]
        assert all(each[1] == told[0][1] for each in told)
        return " ".join(each[0] for each in told).strip(), told[0][1], results[0].stderr

    _, plain, _ = run(2, "plain", 6, "plain")
    said, _, _ = run(2, "large", 2)
    manifest = json.loads((tmp_path / "large/iteration-0000000002/manifest.json").read_text())
    for size, *sums in manifest["files"]["rank-*.safetensors"]:
        assert size // 64 > 100
        assert 1 <= len(sums) <= 8
    assert said == ""
    file = tmp_path / "large/iteration-0000000002/rank-00001.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    said, large, log = run(2, "large", 6)
    assert "rank-00001.safetensors is damaged: its checksum is not" in log
    assert (said, large) == ("", plain)
    assert run(1, "large", 6)[:2] == ("", plain)  # a finished run, on one rank
    # Rank 0 alone measures too much for a manifest: nothing of that save is there.
    said, _, _ = run(2, "much", 4, "much")
    assert "no checkpoint can be saved: its manifest.json would take" in said
    assert said.endswith("another rank could not take part in a checkpoint; its own error says why")
    assert sorted(each.name for each in (tmp_path / "much").glob("*iteration*")) == [
        "iteration-0000000001",
        "iteration-0000000002",
    ]
