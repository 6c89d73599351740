"""The guide's config, in a folder with what the guide puts there, is the script beside it."""

import re
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from camshaft.handlers import checkpoints

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "guides" / "configs.md").read_text()
COMMAND = "from camshaft.__main__ import main\nraise SystemExit(main())"


@pytest.mark.slow
def test_the_config_of_the_guide_is_the_run_of_its_script(processes, tmp_path):
    for name, text in re.findall(r'```\w+ title="(.+?)"\n(.*?)```', PAGE, re.DOTALL):
        (tmp_path / name).write_text(text)
    groups, directory, *_ = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    command, *_ = re.findall(r"^\$ camshaft (.+)$", PAGE, re.MULTILINE)
    processes.run(COMMAND, *command.split(), cwd=tmp_path)
    processes.run(tmp_path / "train.py", cwd=tmp_path)
    one, other = (
        checkpoints(tmp_path / "runs" / each).latest().state_dict("model")
        for each in ("digits", "script")
    )
    assert all(torch.equal(one[key], other[key]) for key in other)
    own = OmegaConf.merge(
        *map(OmegaConf.create, ((tmp_path / "config.yaml").read_text(), groups, directory))
    )
    own.optimizer.pop("_partial_")
    OmegaConf.save(own, tmp_path / "own.yaml")
    overrides = ("lr=0.02", "run.max_epochs=1")
    processes.run(COMMAND, "run", "own.yaml", *overrides, cwd=tmp_path)
    processes.run(COMMAND, "run", "own.yaml", *overrides[:1], "run.max_epochs=2", cwd=tmp_path)
    assert checkpoints(tmp_path / "runs" / "lr=0.02").latest().path.name == "iteration-0000000088"
