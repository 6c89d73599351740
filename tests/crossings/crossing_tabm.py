"""tabm: an ensemble in one network, for tables."""

import torch
from crossing import Trial, adam, digits, exact
from torch import nn

from camshaft import supervised
from camshaft.handlers import EMA


@exact("tabm", "Models", "supervised(TabM.make(n_num_features=8, d_out=4), optimizer, loss)")
def test_ensemble(folder):
    """TabM with its defaults, whose output has a prediction of each of its members."""
    from tabm import TabM

    torch.manual_seed(0)
    model = TabM.make(n_num_features=8, d_out=4, k=4)

    def loss(output, classes):
        return nn.functional.cross_entropy(output.flatten(0, 1), classes.repeat_interleave(4))

    engine = supervised(model, adam(model), loss).add(EMA(0.9))
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))
