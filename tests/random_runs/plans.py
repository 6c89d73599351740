"""A run as text: hypothesis draws it, a failure shows it, and a process of its own can be told it.

Each part of a plan is an expression, as a script would have it.
"""

from dataclasses import dataclass
from functools import partial

from torch.optim import lr_scheduler
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
)
from torchdata.stateful_dataloader import StatefulDataLoader
from torchmetrics import CatMetric, MeanMetric, RunningMean

from camshaft import (
    Events,
    LengthBatches,
    Mixture,
    Padded,
    SeededSamples,
    ShardedStream,
    SharedOrder,
    handlers,
    loader,
    on_rank,
)
from camshaft.handlers import schedules

from . import sources, steps, users

NAMES = {
    **vars(lr_scheduler),
    "partial": partial,
    **{event.name: event for event in Events},
    **{name: getattr(handlers, name) for name in dir(handlers) if name[0] != "_"},
    **{
        name: getattr(schedules, name)
        for name in ("cosine", "hold", "inverse_sqrt", "linear", "warmup")
    },
    **{each.__name__: each for each in (BatchSampler, DataLoader, DistributedSampler)},
    **{each.__name__: each for each in (RandomSampler, WeightedRandomSampler)},
    **{each.__name__: each for each in (StatefulDataLoader, LengthBatches, Padded)},
    **{each.__name__: each for each in (ConcatDataset, Subset, Mixture, SeededSamples)},
    **{each.__name__: each for each in (ShardedStream, SharedOrder, loader, on_rank)},
    **{each.__name__: each for each in (CatMetric, MeanMetric, RunningMean)},
    **vars(sources),
    **vars(steps),
    **vars(users),
}


@dataclass(frozen=True)
class Plan:
    """A run: its data, its engine, its handlers in their order, and the arguments of `run`."""

    data: str
    engine: str
    handlers: tuple[str, ...]
    limits: str

    def build(self, place):
        """Everything anew, as a script that is started makes it: engine, data, arguments."""
        known = NAMES | {"place": place, "dict": dict}
        data = eval(self.data, known)
        engine = eval(self.engine, known)
        for each in self.handlers:
            engine.add(eval(each, known))
        return engine, data, eval(f"dict({self.limits})", known)
