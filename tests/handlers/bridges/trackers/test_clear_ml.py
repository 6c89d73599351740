"""ClearML without a server: its offline sessions, read back."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

# Not importorskip: ClearML changes argparse for the whole process when it is imported.
pytestmark = pytest.mark.skipif(
    find_spec("clearml") is None, reason='needs pip install "camshaft[clearml]"'
)


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEARML_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CLEARML_CONFIG_FILE", str(tmp_path / "clearml.conf"))


@pytest.mark.slow
def test_two_parts_of_a_run_are_sessions_with_one_tag_and_all_rows(processes, tmp_path, offline):
    processes.run(Path(__file__).with_name("runs.py"), "ClearML", cwd=tmp_path)
    tasks, found, media = [], {}, []
    for folder in sorted((tmp_path / "cache" / "offline").glob("offline-*/")):
        tasks.append(json.loads((folder / "task.json").read_text()))
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            for event in json.loads(line):
                if event["type"] == "training_stats_scalar":
                    name = (event["metric"], event["variant"], event["iter"])
                    assert found.setdefault(name, event["value"]) == event["value"]
                else:
                    media.append((event["metric"], event["iter"]))
    losses = {place[2]: value for place, value in found.items() if place[0] == "loss"}
    assert losses == {number: pytest.approx(1 / number) for number in range(1, 9)}
    assert found["val", "loss", 2] == 0.25
    assert {("seen", 2), ("weights", 2)} <= {*media}
    assert len(tasks) == 2
    assert len({*(tag for task in tasks for tag in task["tags"] if "camshaft:" in tag)}) == 1
    assert [task["hyperparams"]["model"]["width"]["value"] for task in tasks] == ["8", "8"]
