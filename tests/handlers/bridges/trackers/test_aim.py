"""Aim on this machine: its files, read back by its own client."""

import json
from pathlib import Path

import pytest

pytest.importorskip("aim", reason='needs pip install "camshaft[aim]"')

READ = """
import json
import aim
[name] = aim.Repo.from_path("board").list_all_runs()
run = aim.Run(name, repo="board", system_tracking_interval=None, capture_terminal_logs=False)
values = {each.name: each.values.sparse_list()[1] for each in run.metrics()}
found = [run["hparams"], run.experiment, values]
info = run.collect_sequence_info(("texts", "images", "distributions"), skip_last_value=True)
media = [each["name"] for kind in info.values() for each in kind]
print(json.dumps([*found, sorted(str(each) for each in media)]))
run.close()
"""


def test_a_resumed_run_is_the_same_run_with_each_row_once(processes, tmp_path):
    processes.run(Path(__file__).with_name("runs.py"), "Aim", cwd=tmp_path)
    line = processes.run(READ, cwd=tmp_path).stdout.splitlines()[-1]
    hparams, experiment, values, media = json.loads(line)
    assert hparams == {"lr": 0.1, "model": {"width": 8}}
    assert experiment == "tests"
    assert sorted(values["loss"]) == pytest.approx([1 / number for number in range(8, 0, -1)])
    assert values["epoch"] == [1.0] * 8
    assert media == ["note", "seen", "weights"]
