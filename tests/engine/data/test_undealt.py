"""Workers that read the same samples of a stream are told of."""

from itertools import islice

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from camshaft import Engine

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Stream(IterableDataset):
    """Twelve samples; `dealt` says whether workers share them."""

    def __init__(self, dealt, sample=float):
        self.dealt, self.sample = dealt, sample

    def __iter__(self):
        worker = get_worker_info() if self.dealt else None
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return (self.sample(each) for each in islice(range(12), first, None, step))


def noisy(number):
    return number + torch.rand(())


def zero(number):
    return 0.0


@pytest.mark.parametrize(
    ("stream", "workers", "message"),
    [
        (Stream(dealt=False), 2, "the 2 workers of the loader read the same samples"),
        (Stream(dealt=True), 2, None),
        (Stream(dealt=False), 1, None),
        (Stream(dealt=False, sample=zero), 2, None),
        (Stream(dealt=False, sample=noisy), 2, None),  # random numbers hide it
    ],
)
def test_workers_that_read_the_same_samples_are_told_of_once(stream, workers, message, caplog):
    loader, seen = DataLoader(stream, 2, num_workers=workers), []
    engine = Engine(lambda state, batch: seen.append(batch))
    for _ in range(2):
        engine.run(loader, max_epochs=1)
    assert len(seen) == 12 * (1 if stream.dealt else workers)
    assert [each.startswith(message or "") for each in caplog.messages] == [True] * bool(message)
