"""Private training: Opacus makes the model, the optimizer and the loader."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events, supervised
from camshaft.handlers import Checkpoint

opacus = pytest.importorskip("opacus")
pytestmark = pytest.mark.filterwarnings(
    "ignore:Secure RNG turned off", "ignore:Optimal order is the", "ignore:Full backward hook"
)


def private(*, poisson_sampling=True):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    numbers = torch.Generator().manual_seed(1)
    data = TensorDataset(
        torch.randn(64, 4, generator=numbers), torch.randint(3, (64,), generator=numbers)
    )
    engine = opacus.PrivacyEngine()
    parts = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, 8, shuffle=True),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=poisson_sampling,
    )
    return engine, model, *parts


def weights(model):
    return [each.tolist() for each in model.parameters()]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_private_training_equals_the_loop_written_by_hand(accumulate):
    engine, model, wrapped, optimizer, loader = private(poisson_sampling=False)
    supervised(wrapped, optimizer, cross_entropy, accumulate=accumulate).run(loader, max_epochs=2)

    by_hand, expected, wrapped, optimizer, loader = private(poisson_sampling=False)
    wrapped.train()
    for _ in range(2):
        for number, (input, target) in enumerate(loader):
            if number % accumulate == 0:
                optimizer.zero_grad()
            cross_entropy(wrapped(input), target).backward()
            if number % accumulate == accumulate - 1:
                optimizer.step()
    assert weights(model) == weights(expected)
    assert engine.get_epsilon(1e-5) == by_hand.get_epsilon(1e-5)


def test_a_private_run_resumes_to_the_same_weights_and_the_same_budget(tmp_path):
    def run(directory, stop_at=None):
        privacy, model, wrapped, optimizer, loader = private()
        engine = supervised(wrapped, optimizer, cross_entropy)
        engine.objects["accountant"] = privacy.accountant
        engine.add(Checkpoint(directory, resume=directory.exists()))
        if stop_at:
            engine.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("test"))
        state = engine.run(loader, max_epochs=3)
        return state.iteration, weights(model), privacy.get_epsilon(1e-5)

    whole = run(tmp_path / "whole")
    left = run(tmp_path / "left", 13)
    assert left[0] == 13
    assert left[2] < whole[2]
    assert run(tmp_path / "left") == whole
