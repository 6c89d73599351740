"""pytorch-tabnet: its network, in a loop of your own."""

import torch
from crossing import Trial, adam, digits, exact
from torch import nn

from camshaft import supervised
from camshaft.handlers import Validate


@exact("pytorch-tabnet", "Models", "supervised(TabNet(...), optimizer, loss)")
def test_network(folder):
    """TabNet with ghost batch normalization, whose output is a pair."""
    from pytorch_tabnet.tab_network import TabNet

    torch.manual_seed(0)
    model = TabNet(8, 4, n_d=4, n_a=4, n_steps=2, virtual_batch_size=2, cat_idxs=[], cat_dims=[],
                   cat_emb_dim=[], group_attention_matrix=torch.eye(8))  # fmt: skip

    def loss(output, classes):
        scores, sparsity = output
        return nn.functional.cross_entropy(scores, classes) - 0.001 * sparsity

    engine = supervised(model, adam(model), loss)
    engine.add(Validate(torch.utils.data.DataLoader(digits(20), 6)))
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))
