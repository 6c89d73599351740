"""Checkpoints of this format are loaded exactly, others are refused with a clear text.

`python tests/faults/test_formats.py` writes the one of this format, if there is none yet.
"""

import hashlib
import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, EarlyStopping, LRSchedule
from camshaft.handlers.checkpoint import BrokenCheckpoint
from camshaft.handlers.checkpoint.format import Manifest, UnreadCheckpoint

FORMAT = Manifest().format
GOLDEN = Path(__file__).parent / "golden"
DATA = [(torch.full((2, 2), each), torch.full((2, 1), each)) for each in (0.5, -0.25, 1.0)]


def run(directory, until, resume):
    """All that a plain run has: momentum, a schedule, a handler's memory, metrics, generators."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    optimizer = torch.optim.Adam(model.parameters(), 0.125)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(
        LRSchedule(torch.optim.lr_scheduler.StepLR(optimizer, 2)),
        EarlyStopping("loss", patience=9),
        Checkpoint(directory, when=Events.ITERATION_COMPLETED(at=4), resume=resume),
    )
    found = {}

    @engine.on(Events.ITERATION_STARTED(at=5))
    def look(state):
        found.update(
            iteration=state.iteration - 1,
            rate=optimizer.param_groups[0]["lr"],
            steps=[each["step"].item() for each in optimizer.state_dict()["state"].values()],
            momentum=optimizer.state_dict()["state"][0]["exp_avg"].tolist(),
            weights=[each.tolist() for each in model.state_dict().values()],
            drawn=[torch.rand(1).item(), random.random()],
            loss=state.metrics["loss"].item(),
        )

    engine.run(DATA, max_iterations=until)
    return found


def write():
    place = GOLDEN / f"format-{FORMAT}"
    if not place.exists():
        torch.manual_seed(0)
        random.seed(0)
        run(place, 4, resume=True)
        (place / "LATEST").unlink()
        shutil.copytree(place, place.parent / "copy")
        expected = run(place.parent / "copy", 5, resume=True)
        (place / "expected.json").write_text(json.dumps(expected, indent=1))
        shutil.rmtree(place.parent / "copy")


@pytest.mark.parametrize("place", sorted(GOLDEN.glob("format-*")), ids=lambda path: path.name)
def test_a_checkpoint_of_every_format_is_loaded_exactly(place, tmp_path):
    directory = shutil.copytree(place, tmp_path / "run")
    assert run(directory, 5, resume=True) == json.loads((place / "expected.json").read_text())


def test_there_is_one_of_this_format():
    assert (GOLDEN / f"format-{FORMAT}").exists()
    size = sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file())
    assert size < 50_000


@pytest.mark.parametrize("number", [1, FORMAT - 1, 999])
def test_a_format_of_the_past_or_the_future_is_refused_with_what_is_needed(number, tmp_path):
    directory = shutil.copytree(GOLDEN / f"format-{FORMAT}", tmp_path / "run")
    (path,) = directory.glob("iteration-*")
    older = shutil.copytree(path, directory / "iteration-0000000003")  # which is not taken for it
    for place, changed in ((path, {"format": number}), (older, {"iteration": 3, "number": 0})):
        body = json.loads((place / "manifest.json").read_text()) | changed
        del body["sha256"]
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        (place / "manifest.json").write_text(json.dumps({**body, "sha256": digest}))
    says = f"it is of format {number}, and this reads 3; read it with the version that wrote it"
    with pytest.raises(BrokenCheckpoint, match=says):
        run(directory, 6, resume=path)
    with pytest.raises(UnreadCheckpoint, match=says):
        run(directory, 6, resume=True)


if __name__ == "__main__":
    write()
