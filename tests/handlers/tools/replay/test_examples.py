"""Iterations of the examples are computed again, and have the bits that the run has written."""

from pathlib import Path

import pytest

from camshaft.handlers.checkpoint import checkpoints

EXAMPLES = Path(__file__).parents[4] / "examples"
SHORT = {
    "digits": ("--max-epochs=3", "--max-batches=8"),
    "char_gpt": ("--max-steps=16", "--max-batches=4", "--max-length=48", "--batch-size=4"),
    "sft": ("--max-steps=6", "--every=2", "--modules=[a-c]*.py", "--batch-size=4"),
    "reinforce": ("--max-epochs=3", "--max-batches=3", "--episodes=2"),
}


@pytest.mark.soak
@pytest.mark.parametrize("example", SHORT)
def test_an_iteration_of_an_example_is_computed_again(
    processes, replayed, tmp_path, monkeypatch, example
):
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES / f"{example}.py").read_text()
    (tmp_path / "train.py").write_text(text.replace("keep=latest(1)", "keep=latest(9)"))
    processes.run(tmp_path / "train.py", *SHORT[example], cwd=tmp_path)
    runs = {each.parent for each in tmp_path.glob("runs/**/iteration-*")}
    run = min(runs, key=lambda each: len(each.parts))
    first = min(each.manifest.iteration for each in checkpoints(run))
    code, told = replayed(first + 1, *SHORT[example], path=run.relative_to(tmp_path))
    assert (code, told["verdict"]) in ((0, "same"), (0, "nothing to compare")), told
    assert len(told["fingerprints"]["weights"]) > 1
