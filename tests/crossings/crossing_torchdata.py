"""torchdata: loaders that keep their own state."""

import torch
from crossing import digits, exact, told, trained_on


@exact("torchdata", "Data", "engine.run(StatefulDataLoader(data, batch_size=4, shuffle=True))")
def test_stateful_loader(folder):
    """StatefulDataLoader without workers: its state is saved and loaded."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    torch.manual_seed(0)
    return trained_on(StatefulDataLoader(digits(), 4, shuffle=True))


@exact(
    "torchdata",
    "Data",
    "engine.run(StatefulDataLoader(data, batch_size=4, shuffle=True, num_workers=2))",
    warns="random numbers that workers of a StatefulDataLoader draw",
    note="Samples that draw random numbers in workers need a plain DataLoader.",
)
def test_stateful_loader_with_workers(folder):
    """StatefulDataLoader with two workers."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    torch.manual_seed(0)
    return trained_on(StatefulDataLoader(digits(), 4, shuffle=True, num_workers=2))


@told(
    "torchdata",
    "Data",
    "StatefulDataLoader(..., num_workers=n) with the same n, or a change between epochs",
    match="workers",
)
def test_stateful_loader_with_other_workers(folder):
    """StatefulDataLoader with another number of workers in mid-epoch."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    torch.manual_seed(0)
    workers = 1 if (folder / "checkpoints").exists() else 2
    return trained_on(StatefulDataLoader(digits(), 4, shuffle=True, num_workers=workers))


def nodes(samples):
    """A Loader of batches of four."""
    from torchdata.nodes import Batcher, Loader, Mapper

    return Loader(Mapper(Batcher(samples, 4), torch.utils.data.default_collate))


@exact("torchdata", "Data", "MapStyleWrapper(data, RandomSampler(data, generator=Generator()))")
def test_nodes(folder):
    """A Loader of torchdata.nodes over a RandomSampler that has a generator."""
    from torchdata.nodes import MapStyleWrapper

    data, generator = digits(), torch.Generator().manual_seed(0)
    sampler = torch.utils.data.RandomSampler(data, generator=generator)
    return trained_on(nodes(MapStyleWrapper(data, sampler)))


@exact("torchdata", "Data", "engine.run(Loader(Mapper(Batcher(samples, 4), default_collate)))")
def test_nodes_without_generator(folder):
    """A Loader of torchdata.nodes over a RandomSampler that has no generator."""
    from torchdata.nodes import MapStyleWrapper

    torch.manual_seed(0)
    data = digits()
    return trained_on(nodes(MapStyleWrapper(data, torch.utils.data.RandomSampler(data))))


@exact(
    "torchdata",
    "Data",
    "Loader(MultiNodeWeightedSampler(nodes, weights, seed=0))",
    warns="unless its length varies",
    note="An epoch's length varies with its draws; a warning at the resume says so.",
)
def test_weighted_nodes(folder):
    """A Loader over MultiNodeWeightedSampler, which draws from two weighted sources."""
    from torchdata.nodes import MapStyleWrapper, MultiNodeWeightedSampler

    data = digits()
    halves = {0: range(22), 1: range(22, 44)}
    halves = {f"{name}": MapStyleWrapper(data, half) for name, half in halves.items()}
    return trained_on(nodes(MultiNodeWeightedSampler(halves, {"0": 2.0, "1": 1.0}, seed=0)))
