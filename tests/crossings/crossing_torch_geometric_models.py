"""torch_geometric: graphs, and layers that draw random numbers."""

import torch
from crossing import Trial, adam, exact
from torch import nn

from camshaft import Engine, Update


@exact("torch-geometric", "Models", "loss = loss_fn(model(batch.x, batch.edge_index), batch.y)")
def test_graphs(folder):
    """A GCN with dropped edges and DataLoader of torch_geometric."""
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GCN, global_mean_pool
    from torch_geometric.utils import dropout_edge

    torch.manual_seed(0)
    graphs = [
        Data(torch.randn(6, 8), torch.randint(0, 6, (2, 14)), y=torch.tensor([n % 4]))
        for n in range(44)
    ]
    model = GCN(8, 16, num_layers=2, out_channels=4, dropout=0.2, norm="BatchNorm")
    update = Update(adam(model))

    def step(state, batch):
        edges, _ = dropout_edge(batch.edge_index, p=0.2)
        out = global_mean_pool(model(batch.x, edges), batch.batch)
        loss = nn.functional.cross_entropy(out, batch.y)
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    return Trial(engine, DataLoader(graphs, 4, shuffle=True))
