"""Three places for checkpoints: the disks of the hosts, the shared directory, and a store."""

import shutil

import pytest
import torch
from torch import nn

from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, Local, Mirror

pytest.importorskip("fsspec", reason='needs pip install "camshaft[stores]"')
DATA = [(torch.full((2, 3), float(n)), torch.ones(2, 1)) for n in range(20)]


@pytest.fixture
def start(tmp_path):
    """Runs in these places, perhaps to an error; each gives where it began, and its weights."""

    def run(fails_at=None):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.Adam(model.parameters())
        engine = supervised(model, optimizer, nn.functional.mse_loss)
        local = Local(tmp_path / "nvme", when=Events.ITERATION_COMPLETED)
        every = Events.ITERATION_COMPLETED(every=4)
        saving = Checkpoint(tmp_path / "run", when=every, resume=True)
        engine.add(Mirror(f"file:{tmp_path / 'store'}", interval=0.05), local, saving)
        began = []
        engine.on(Events.STARTED)(lambda state: began.append(state.iteration))

        def fail(state):
            raise RuntimeError("the machine is gone")

        if fails_at is None:
            engine.run(DATA, max_epochs=1)
        else:
            engine.on(Events.ITERATION_STARTED(at=fails_at))(fail)
            with pytest.raises(RuntimeError, match="the machine is gone"):
                engine.run(DATA, max_epochs=1)
        return began[0], [each.tolist() for each in model.parameters()]

    return run


@pytest.mark.quick(lost=1)
@pytest.mark.parametrize(
    ("lost", "began"), [((), 10), (("nvme",), 8), (("run",), 10), (("nvme", "run"), 8)]
)
def test_a_start_takes_the_nearest_place_that_is_left_and_ends_as_the_whole_run(
    start, tmp_path, lost, began
):
    start(fails_at=11)
    for each in lost:
        shutil.rmtree(tmp_path / each)
    resumed = start()
    assert resumed[0] == began
    for each in ("nvme", "run", "store"):
        shutil.rmtree(tmp_path / each)
    assert start() == (0, resumed[1])
