"""Five public modules: trained by Lightning and by Camshaft, and resumed after kills."""

import signal
from pathlib import Path

import pytest
import torch

from camshaft import Events
from camshaft.handlers import Checkpoint

lightning_modules = pytest.importorskip("lightning_modules")
SCRIPT = Path(lightning_modules.__file__)
NAMES = sorted(lightning_modules.MODULES)
TWO_SLOW = [
    pytest.param(each, marks=pytest.mark.slow if number < 2 else pytest.mark.soak)
    for number, each in enumerate(NAMES)
]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "fine_tuned")) for n in NAMES]
)
def test_it_ends_with_the_weights_and_the_metrics_of_lightnings_trainer(name):
    module, metrics = lightning_modules.by_camshaft(name)
    other, expected = lightning_modules.by_lightning(name)
    assert same(module.state_dict(), other.state_dict())
    assert same({key: metrics[key] for key in expected}, dict(expected))
    assert len(expected) >= 1 + (name != "gan")


@pytest.mark.parametrize("name", TWO_SLOW)
def test_killed_twice_and_resumed_it_is_the_same_run(name, processes, tmp_path):
    module, metrics = lightning_modules.by_camshaft(name)
    result = tmp_path / "result.pt"
    command = (SCRIPT, name, tmp_path / "run", result)
    whole = lightning_modules.EPOCHS * len(lightning_modules.data(name)[0])
    for at in (3, whole - 2):  # in the last epoch, whose values are compared, too
        killed = processes.run(*command, env={"KILL_AT": str(at)}, code=None)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert not result.exists()
    processes.run(*command)
    weights, resumed, epochs_trained = torch.load(result)
    assert same(weights, module.state_dict())
    assert same(resumed, dict(metrics))
    assert epochs_trained == getattr(module, "epochs_trained", 0)


class Interrupted:
    """Interrupt the run after one iteration."""

    def __init__(self, at):
        self.at = at

    def attach(self, engine):
        engine.on(Events.ITERATION_COMPLETED(at=self.at))(lambda state: state.interrupt("test"))


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_left_after_each_iteration_and_resumed_it_is_the_same_run(name, tmp_path):
    module, metrics = lightning_modules.by_camshaft(name)
    whole = lightning_modules.EPOCHS * len(lightning_modules.data(name)[0])
    for at in range(1, whole + 2):
        checkpoint = Checkpoint(tmp_path, resume=True, background=False)
        parts, found = lightning_modules.by_camshaft(name, checkpoint, Interrupted(at))
    assert same(parts.state_dict(), module.state_dict())
    assert same(dict(found), dict(metrics))
