"""ignite's ClearML logger on Camshaft's engine: its offline session, read back."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from .sides import BATCHES, EPOCHS

SCRIPT = Path(__file__).with_name("by_clear_ml.py")


def scalars(cache):
    """The values of an offline session by metric, variant and iteration."""
    found = {}
    (session,) = (cache / "offline").glob("offline-*/")
    for line in (session / "metrics.jsonl").read_text().splitlines():
        for event in json.loads(line):
            if event["type"] == "training_stats_scalar":
                found[event["metric"], event["variant"], event["iter"]] = event["value"]
    return found


@pytest.mark.soak
@pytest.mark.skipif(find_spec("clearml") is None, reason='needs pip install "camshaft[clearml]"')
def test_an_offline_session_of_clear_ml_has_the_same_values(processes, tmp_path, monkeypatch):
    monkeypatch.setenv("CLEARML_CONFIG_FILE", str(tmp_path / "clearml.conf"))
    found = []
    for side in ("ByIgnite", "ByCamshaft"):
        monkeypatch.setenv("CLEARML_CACHE_DIR", str(tmp_path / side))
        processes.run(SCRIPT, side, cwd=tmp_path)
        found.append(scalars(tmp_path / side))
    assert found[0] == found[1]
    named = [metric for metric, variant, _ in found[0] if metric == "training"]
    assert len(named) == EPOCHS + EPOCHS * BATCHES // 2
    assert any("lr" in metric for metric, *_ in found[0])
