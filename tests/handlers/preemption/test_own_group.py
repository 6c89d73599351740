"""A training process that sends a signal to its own group, of which its workers are."""

import pytest

from camshaft.handlers.checkpoint import checkpoints

SCRIPT = """
import os, signal, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, StopOnSignal, Validate, latest

directory, number, place, context = sys.argv[1:]


class Samples(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((4,), index / 24) + torch.rand(4), torch.tensor([index / 24])


def signal_group():
    os.killpg(0, getattr(signal, number))
    time.sleep(0.3)  # a worker that would die is dead


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    options = {"num_workers": 2, "multiprocessing_context": context}
    train, val = (DataLoader(Samples(), 3, shuffle=each, **options) for each in (True, False))
    when = Events.ITERATION_COMPLETED(every=4)
    engine.add(
        StopOnSignal(),
        Validate(val, when=Events.ITERATION_COMPLETED(at=3)),
        Checkpoint(directory, when=when, keep=latest(9), resume=True),
    )
    events = {"step": Events.GRADIENTS_READY, "save": Events.SAVING}
    home = engine.evaluation if place == "evaluation" else engine
    sent, fresh = [], not os.path.exists(directory)

    @home.on(events.get(place, Events.ITERATION_COMPLETED))
    def interrupt(state):
        at = {"never": None, "save": 4}.get(place, 3)
        if fresh and state.iteration == at and not sent:
            sent.append(True)
            signal_group()

    engine.run(train, max_epochs=2)
    print(model.state_dict(), torch.rand(2))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "place", "context"),
    [
        ("SIGTERM", "step", "fork"),
        pytest.param("SIGTERM", "step", "forkserver", marks=pytest.mark.soak),
        pytest.param("SIGTERM", "evaluation", "fork", marks=pytest.mark.soak),
        pytest.param("SIGTERM", "save", "fork", marks=pytest.mark.soak),
        pytest.param("SIGINT", "step", "fork", marks=pytest.mark.soak),
        pytest.param("SIGUSR1", "step", "fork", marks=pytest.mark.soak),
    ],
)
def test_a_signal_to_the_own_group_costs_no_batch(processes, tmp_path, number, place, context):
    codes = {"SIGTERM": 143, "SIGINT": 130, "SIGUSR1": 138}
    script = tmp_path / "script.py"  # from which spawned workers import the data set
    script.write_text(SCRIPT)
    whole = processes.run(script, tmp_path / "whole", number, "never", context).stdout
    first = processes.run(script, tmp_path / "run", number, place, context, code=codes[number])
    does = "leaves this evaluation" if place == "evaluation" else "stops after this step"
    assert f"{number}: {does}" in first.stderr
    assert "Traceback" not in first.stderr
    saved = checkpoints(tmp_path / "run").latest()
    assert saved is not None
    assert saved.manifest.iteration == (4 if place == "save" else 3)
    assert processes.run(script, tmp_path / "run", number, "never", context).stdout == whole
