"""The examples resume exactly, whenever they are killed: so says `camshaft prove`."""

import json
import sys
from pathlib import Path

import pytest

from camshaft.handlers.tools.prove import prove

EXAMPLES = Path(__file__).parents[4] / "examples"
SHORT = {
    "digits": ("--max-epochs=3", "--max-batches=8"),
    "preemptible": ("--max-epochs=6", "--workers=1"),  # 270 steps; it saves every 100
    "reinforce": ("--max-epochs=3", "--max-batches=3", "--episodes=2"),
    "ppo": ("--rollouts=25",),  # it saves every 10
    "grpo": ("--warm-up=4", "--max-steps=48", "--batch-size=2", "--group=3"),  # every 20 steps
    "char_gpt": ("--max-steps=8", "--max-batches=4", "--max-length=48", "--batch-size=4"),
    "word_language_model": ("--max-epochs=3", "--max-batches=6", "--words=20000"),
    "fsdp_gpt": ("--max-steps=6", "--every=2", "--length=32", "--width=32", "--modules=a*.py"),
    "sft": ("--max-steps=6", "--every=2", "--modules=[a-c]*.py", "--batch-size=4"),
}


# tests/examples kills them too, each at a place that matters to it.
@pytest.mark.soak
@pytest.mark.parametrize("example", SHORT)
def test_an_example_is_proven(proof, example):
    code, told = proof((EXAMPLES / f"{example}.py").read_text(), *SHORT[example], kills=2)
    assert (code, told["verdict"]) == (0, "proven"), told


@pytest.mark.soak
def test_an_example_on_two_ranks_started_by_torchrun_is_proven(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "train.py").write_text((EXAMPLES / "fsdp_gpt.py").read_text())
    command = [sys.executable, "train.py", *SHORT["fsdp_gpt"]]
    code = prove(command, kills=2, ranks=2, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"]) == (0, "proven"), told
    assert {kill["rank"] for kill in told["kills"]} <= {None, 0, 1}
