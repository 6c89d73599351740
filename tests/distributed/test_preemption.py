"""Two processes over gloo that are to stop at the same place."""

import json
from pathlib import Path

from camshaft.handlers.checkpoint import checkpoints

SCRIPT = Path(__file__).parent / "signal_on_one_rank.py"


def test_a_signal_on_one_rank_and_the_clock_of_the_first_stop_both_at_the_same_iteration(
    processes, tmp_path
):
    processes.run_ranks(2, SCRIPT, tmp_path)
    results = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert results == [{"by the clock": 7, "by the signal": 9, "code": 143}] * 2
    saved = [each.manifest for each in checkpoints(tmp_path / "run")]
    assert [(each.iteration, each.reason) for each in saved] == [
        (7, "65 seconds are over"),
        (9, "SIGTERM"),
    ]
