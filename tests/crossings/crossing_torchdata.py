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
