"""A loader's worker that the kernel kills for memory: by SIGKILL, with no word to its parent.

The worker sends itself that signal, since a real lack of memory would hit other processes too.
"""

import pytest

from camshaft.handlers.checkpoint import checkpoints

SCRIPT = """
import json, os, signal, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info
from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, JSONLines, latest

directory, dies = sys.argv[1], int(sys.argv[2])


class Samples(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        if index == dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((4,), index / 24) + torch.rand(4), torch.tensor([index / 24])


torch.manual_seed(0 if dies >= 0 else 5)
if "whole" in directory:
    torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
engine = supervised(model, optimizer, nn.functional.mse_loss)
engine.add(
    Checkpoint(directory, when=Events.ITERATION_COMPLETED, keep=latest(2), resume=True),
    JSONLines(directory + "/rows.jsonl", when=Events.ITERATION_COMPLETED),
)
loader = DataLoader(Samples(), 3, num_workers=2, multiprocessing_context="fork")
engine.run(loader, max_epochs=2)
print(json.dumps([each.tolist() for each in model.state_dict().values()]))
print(json.dumps(torch.rand(2).tolist()))
print(open(directory + "/rows.jsonl").read())
"""


def test_a_killed_worker_is_named_with_what_to_do_and_the_run_goes_on_exactly(processes, tmp_path):
    whole = processes.run(SCRIPT, tmp_path / "whole", -1).stdout
    failed = processes.run(SCRIPT, tmp_path / "killed", 17, code=1)
    assert "DataLoader worker (pid" in failed.stderr
    assert "Killed" in failed.stderr or "exited unexpectedly" in failed.stderr
    assert "A worker that is killed has most often run out of memory" in failed.stderr
    assert "num_workers" in failed.stderr
    saved = checkpoints(tmp_path / "killed").latest()
    assert saved is not None
    assert 1 <= saved.manifest.iteration <= 5  # the sixth batch is the one that was never there
    assert processes.run(SCRIPT, tmp_path / "killed", -1).stdout == whole


CLOSES = """
from multiprocessing import resource_sharer
class Closing(Samples):
    def __getitem__(self, index):
        if index == dies:
            # As the kernel ends a process: its connections first, itself a moment later.
            resource_sharer._resource_sharer._listener.close()
            open(directory + ".closed", "w").close()
            time.sleep(0.3)
        return super().__getitem__(index)

@engine.on(Events.ITERATION_COMPLETED(every=3))
def wait_for_the_worker(state):
    if dies >= 0:
        while not os.path.exists(directory + ".closed"):
            time.sleep(0.01)

"""


@pytest.mark.slow
def test_a_worker_that_loses_its_connections_before_it_ends_is_named_too(processes, tmp_path):
    script = SCRIPT.replace("import json", "import time, json").replace(
        "Samples(), 3", "Closing(), 3"
    )
    script = script.replace("loader =", CLOSES + "loader =")
    # The third batch asks for the sixth: the fourth is sent by then, and not received.
    script = script.replace("num_workers=2", "num_workers=1, prefetch_factor=3")
    failed = processes.run(script, tmp_path / "killed", 17, code=1)
    assert "RuntimeError: DataLoader worker (pid" in failed.stderr
    assert "A worker that is killed has most often run out of memory" in failed.stderr
    assert failed.stderr.count("A worker that is killed") == 1
    saved = checkpoints(tmp_path / "killed").latest()
    assert saved is not None
    assert saved.manifest.iteration == 3


ELSEWHERE = """
@engine.on(Events.ITERATION_COMPLETED(every=2))
def fail(state):
    raise ValueError("an error of its own")

@engine.on(Events.FAILED)
def wait_for_the_signal(state):
    time.sleep(30)

"""


@pytest.mark.slow
def test_the_advice_is_there_also_if_the_signal_comes_while_another_error_is_handled(
    processes, tmp_path
):
    """Whichever of the two comes first, the run ends with what to do about the worker."""
    script = SCRIPT.replace("import json", "import time, json").replace(
        "loader =", ELSEWHERE + "loader ="
    )
    failed = processes.run(script, tmp_path / "killed", 17, code=1)
    assert "A worker that is killed has most often run out of memory" in failed.stderr
    assert failed.stderr.count("A worker that is killed") == 1
