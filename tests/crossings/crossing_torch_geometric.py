"""torch_geometric: loaders of graphs."""

import torch
from crossing import exact, trained_with
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import (
    DataLoader,
    DynamicBatchSampler,
    ImbalancedSampler,
    RandomNodeLoader,
)
from torch_geometric.nn import GCNConv, global_mean_pool


def graphs():

    generator = torch.Generator().manual_seed(5)
    made = []
    for i in range(44):
        edges = torch.randint(0, 5, (2, 8), generator=generator)
        made.append(Data(x=torch.randn(5, 8, generator=generator), edge_index=edges, y=i % 4))
    return made


class Network(nn.Module):
    def __init__(self):
        super().__init__()

        self.graph, self.last = GCNConv(8, 32), nn.Linear(32, 4)

    def forward(self, batch):

        nodes = nn.functional.dropout(self.graph(batch.x, batch.edge_index), 0.1, self.training)
        return self.last(nodes if batch.batch is None else global_mean_pool(nodes, batch.batch))


def trained_on(loader, **options):
    torch.manual_seed(0)
    model = Network()

    def loss_of(batch):
        return nn.functional.cross_entropy(model(batch), batch.y)

    return trained_with(model, loss_of, loader, **options)


@exact("torch_geometric", "Data", "engine.run(DataLoader(graphs, batch_size=4, shuffle=True))")
def test_loader(folder):
    """DataLoader of torch_geometric, which joins graphs."""
    torch.manual_seed(0)
    return trained_on(DataLoader(graphs(), 4, shuffle=True))


@exact("torch_geometric", "Data", "DataLoader(graphs, sampler=ImbalancedSampler(classes))")
def test_imbalanced(folder):
    """ImbalancedSampler, which has no generator."""
    torch.manual_seed(0)
    data = graphs()
    classes = torch.tensor([min(each.y, 2) for each in data])
    return trained_on(DataLoader(data, 4, sampler=ImbalancedSampler(classes)))


@exact("torch_geometric", "Data", "DynamicBatchSampler(graphs, max_num=20, num_steps=11)")
def test_dynamic(folder):
    """DynamicBatchSampler, which fills batches up to a number of nodes, with num_steps=."""
    torch.manual_seed(0)
    data = graphs()
    sampler = DynamicBatchSampler(data, max_num=20, mode="node", shuffle=True, num_steps=11)
    return trained_on(DataLoader(data, batch_sampler=sampler))


@exact("torch_geometric", "Data", "engine.run(RandomNodeLoader(graph, num_parts=11))")
def test_random_nodes(folder):
    """RandomNodeLoader over one large graph."""
    generator = torch.Generator().manual_seed(5)
    edges = torch.randint(0, 110, (2, 800), generator=generator)
    features = torch.randn(110, 8, generator=generator)
    graph = Data(x=features, edge_index=edges, y=torch.arange(110) % 4)
    torch.manual_seed(0)
    return trained_on(RandomNodeLoader(graph, num_parts=11, shuffle=True))
