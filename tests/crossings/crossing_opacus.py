"""opacus: training with differential privacy."""

import torch
from crossing import Trial, digits, exact, network
from torch import nn

from camshaft import Engine, Update


def private(clipping="flat", **options):
    """What a PrivacyEngine makes, and an engine that trains with it."""
    from opacus import PrivacyEngine

    torch.manual_seed(0)
    model = network()
    privacy = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = privacy.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.1),
        data_loader=torch.utils.data.DataLoader(digits(176), 16),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        clipping=clipping,
        **options,
    )
    update = Update(optimizer, model=model)

    def step(state, batch):
        features, classes = batch
        update(state, nn.functional.cross_entropy(model(features), classes))
        state.metrics["epsilon"] = privacy.get_epsilon(1e-5)

    objects = {"model": model, "optimizer": optimizer, "accountant": privacy.accountant}
    return Trial(Engine(step, update, objects=objects), loader)


@exact("opacus", "Models", 'objects={..., "accountant": privacy.accountant}')
def test_private(folder):
    """PrivacyEngine.make_private, with the accountant named, and samples drawn at random."""
    return private()


@exact("opacus", "Models", 'objects={..., "accountant": privacy.accountant}')
def test_adaptive_clipping(folder):
    """Adaptive clipping, whose bound is an attribute of the optimizer that the run changes."""
    return private(
        "adaptive",
        target_unclipped_quantile=0.5, clipbound_learning_rate=0.2, max_clipbound=9.0,
        min_clipbound=0.05, unclipped_num_std=1.0,
    )  # fmt: skip
