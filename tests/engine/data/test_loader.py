"""Torch's loaders: entered anywhere without loading what is skipped, with reproducible workers."""

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import time
from contextlib import contextmanager

import numpy
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    get_worker_info,
)
from torchdata.stateful_dataloader import StatefulDataLoader

from camshaft import Engine, Events, SharedOrder

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more than the machine has
    pytest.mark.filterwarnings("ignore:.set_vital. is deprecated"),  # by torchdata 0.11
]


class Augmented(Dataset):
    """Numbers with noise of all three generators; counts what is loaded, in any process."""

    def __init__(self, length=23):
        self.length = length
        self.loaded = multiprocessing.Array("i", length)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        with self.loaded.get_lock():
            self.loaded[index] += 1
        noise = random.random() + float(numpy.random.rand()) + torch.rand(()).item()
        return torch.tensor([index, noise], dtype=torch.float64)


class ManyAtOnce(Augmented):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


@pytest.mark.quick(data=1, batch_size=1)
@pytest.mark.parametrize("data", [Augmented, ManyAtOnce])
@pytest.mark.parametrize("batch_size", [4, None])
def test_what_workers_draw_does_not_depend_on_how_many_there_are(data, batch_size, seen_in):
    def make(*workers, persistent=False):
        numbers = iter(workers)
        return lambda: DataLoader(
            *(data(), batch_size, True),
            num_workers=next(numbers),
            persistent_workers=persistent,
        )

    one = seen_in(make(1))
    assert len({str(batch) for batch, *_ in one}) == len(one)  # no two passes have the same noise
    assert seen_in(make(3)) == one
    assert seen_in(make(2, persistent=True)) == one
    assert seen_in(make(2, 3, 1), [2, 8]) == one


def test_carrying_on_in_mid_epoch_loads_the_first_batch_again_and_no_other_one(seen_in):
    for workers in (0, 2):
        data = Augmented()
        seen = seen_in(lambda w=workers: DataLoader(data, 4, True, num_workers=w), [3], epochs=1)  # noqa: B023
        assert len(seen) == 6
        loaded = list(data.loaded)
        prefetched = 2 * workers * 4  # by the workers of the run that was left
        assert sum(loaded) <= 23 + 4 + prefetched
        for number, (batch, *_) in enumerate(seen[:2]):
            assert all(loaded[int(index)] == 2 - number for index, _ in batch)


TURNS = DistributedSampler(range(40_008), 1, 0)
SHARED = SharedOrder(RandomSampler(range(40_008)), num_replicas=1, rank=0)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"sampler": TURNS}, {"sampler": SHARED}])
def test_a_run_goes_on_at_batch_ten_thousand_without_loading_those_before(options):
    class Counting(Dataset):
        calls = 0

        def __len__(self):
            return 40_008

        def __getitem__(self, index):
            type(self).calls += 1
            return index

    seen = []
    engine = Engine(lambda state, batch: seen.extend(batch.tolist()))
    engine.on(Events.ITERATION_COMPLETED(at=10_000))(lambda state: state.stop("pause"))
    torch.manual_seed(0)
    state = engine.run(DataLoader(Counting(), 4, **options), max_epochs=1)
    assert Counting.calls == 40_000
    engine.run(DataLoader(Counting(), 4, **options), state=state)
    assert Counting.calls == 40_008
    assert sorted(seen) == list(range(40_008))


def test_ranks_with_the_same_seed_do_not_draw_the_same_augmentation(monkeypatch, seen_in):
    from camshaft.engine import ranks

    loader = DataLoader(Augmented(), 4, num_workers=1)
    first = [batch for batch, *_ in seen_in(lambda: loader, epochs=1)]
    monkeypatch.setattr(ranks, "data_rank", lambda: 1)
    other = [batch for batch, *_ in seen_in(lambda: loader, epochs=1)]
    assert [[index for index, _ in batch] for batch in first] == [
        [index for index, _ in batch] for batch in other
    ]
    assert not {str(batch) for batch in first} & {str(batch) for batch in other}


def test_the_users_loader_is_left_as_it_is(seen_in):
    loader = DataLoader(Augmented(), 4, shuffle=True, num_workers=1, persistent_workers=True)
    before = dict(vars(loader))
    seen_in(lambda: loader)
    assert vars(loader) == before
    assert len(list(loader)) == 6  # and works on its own


@pytest.fixture
def workers():
    """The workers made since the test began; those of earlier ones may wait to be collected."""
    before = set(multiprocessing.active_children())
    return lambda: set(multiprocessing.active_children()) - before


@pytest.mark.parametrize(
    "arguments", [{}, {"epoch_length": 4}, {"max_iterations": 3}, {"max_iterations": 1}]
)
def test_no_worker_is_left_when_a_run_is_over(arguments, workers):
    gc.disable()  # they end with the run, not some time later
    try:
        engine = Engine(lambda state, batch: None)
        engine.run(DataLoader(Augmented(), 4, num_workers=2), max_epochs=2, **arguments)
        assert workers() == set()
    finally:
        gc.enable()


class Pid(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return os.getpid()


def test_persistent_workers_serve_one_run_after_the_other_and_end_with_their_loader(workers):
    loader = DataLoader(Pid(), 2, num_workers=1, persistent_workers=True)
    pids = []
    engine = Engine(lambda state, batch: pids.extend(batch.tolist()))
    engine.run(loader, max_epochs=2)
    for _ in range(3):
        engine.evaluate(loader)
    assert len(set(pids)) == 1
    del loader
    assert workers() == set()


def test_workers_are_prepared_by_the_users_function_which_sees_the_users_data_set():
    class Opened(Augmented):
        factor = 0

        def __getitem__(self, index):
            return torch.tensor(float(index * self.factor))

    def prepare(worker):
        get_worker_info().dataset.factor = 10 + worker

    seen = []
    loader = DataLoader(Opened(3), 1, num_workers=1, worker_init_fn=prepare)
    Engine(lambda state, batch: seen.append(batch.item())).run(loader, max_epochs=1)
    assert seen == [0.0, 10.0, 20.0]


class Handlers(Dataset):
    """Whether a worker is safe from two signals."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        ignored = {n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN}
        safe = blocked | ignored
        return torch.tensor([float(each in safe) for each in (signal.SIGTERM, signal.SIGINT)])


@contextmanager
def handling(number):
    before = signal.signal(number, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_workers_leave_the_signals_to_a_main_process_that_deals_with_them():
    seen = []
    engine = Engine(lambda state, batch: seen.append(batch[0].tolist()))
    with handling(signal.SIGTERM):
        engine.run(DataLoader(Handlers(), 1, num_workers=1), max_epochs=1)
        with handling(signal.SIGINT):
            engine.evaluate(DataLoader(Handlers(), 1, num_workers=1))
    engine.run(DataLoader(Handlers(), 1, num_workers=1), max_epochs=1)
    assert seen == [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]


@pytest.mark.quick(context=1)
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_signal_to_the_workers_costs_no_batch_where_the_main_process_deals_with_it(
    context, workers
):
    seen = []

    def process(state, batch):
        seen.extend(batch.tolist())
        if state.iteration == 2:
            pids = [str(worker.pid) for worker in workers()]
            assert len(pids) == 2
            subprocess.run(["kill", "-TERM", *pids], check=True)
            time.sleep(0.2)  # so that a worker that would die is dead

    with handling(signal.SIGTERM):
        loader = DataLoader(range(40), 2, num_workers=2, multiprocessing_context=context)
        Engine(process).run(loader, max_epochs=1)
    assert seen == list(range(40))


SCRIPT = """
import multiprocessing, signal, torch
from camshaft import Engine

def blocked(queue):
    queue.put(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))))

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    loader = torch.utils.data.DataLoader([1], multiprocessing_context="forkserver", num_workers=1)
    Engine(lambda state, batch: None).run(loader, max_epochs=1)
    context = multiprocessing.get_context("forkserver")
    queue = context.SimpleQueue()
    process = context.Process(target=blocked, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
"""


@pytest.mark.slow
def test_a_server_that_makes_workers_holds_no_signal_back_from_other_processes(processes, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert processes.run(script).stdout == "[]\n"


@pytest.mark.quick(context=1)
@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_a_worker_still_ends_when_its_parent_wants_it_to(context, workers):
    with handling(signal.SIGTERM):
        engine = Engine(lambda state, batch: None)
        loader = DataLoader(range(4), 1, num_workers=1, multiprocessing_context=context)

        @engine.on(Events.ITERATION_COMPLETED)
        def end(state):
            for worker in workers():
                worker.terminate()
                worker.join()
                assert worker.exitcode == 0
            state.stop("enough")

        engine.run(loader, max_epochs=1)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


class OwnGenerator(Augmented):
    def __init__(self):
        super().__init__()
        self.generator = numpy.random.default_rng(0)


@pytest.mark.parametrize(
    ("make", "doubt"),
    [
        (lambda: DataLoader(OwnGenerator(), 4, num_workers=1), "a random generator of its own"),
        (lambda: DataLoader(Augmented(), 4, num_workers=1, in_order=False), "in_order=False"),
        (
            lambda: DataLoader(Stream(), 4, num_workers=1, persistent_workers=True),
            "persistent workers",
        ),
        (
            lambda: StatefulDataLoader(Augmented(), 4, num_workers=1),
            "workers of a StatefulDataLoader draw are not in its state",
        ),
    ],
)
def test_what_cannot_be_resumed_exactly_says_so_once_at_the_first_save(make, doubt, doubts):
    (message,) = doubts(make())
    assert message.startswith("a resumed run may not be the same to the last bit: ")
    assert doubt in message


@pytest.mark.parametrize("workers", [0, 2])
def test_what_can_be_resumed_exactly_raises_no_doubt(workers, doubts):
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    assert doubts(DataLoader(Augmented(), 4, shuffle=True, **options)) == []


def test_in_mid_epoch_other_data_is_an_error_and_between_epochs_it_is_none():
    engine = Engine(lambda state, batch: None)
    engine.on(Events.ITERATION_COMPLETED(at=(3, 6)))(lambda state: state.stop("pause"))
    state = engine.run(DataLoader(Augmented(), 4), max_epochs=2)
    with pytest.raises(ValueError, match=r"batches 6 -> 5, samples 23 -> 20"):
        engine.run(DataLoader(Augmented(20), 4), state=state)
    with pytest.raises(ValueError, match=r"drawn by SequentialSampler, and RandomSampler draws"):
        engine.run(DataLoader(Augmented(), 4, shuffle=True), state=state)
    engine.run(DataLoader(Augmented(), 4), state=state)
    assert (state.epoch, state.control.in_epoch) == (1, False)
    assert engine.run(DataLoader(Augmented(20), 2), state=state).iteration == 6 + 10


def test_a_stream_cut_among_workers_needs_as_many_to_be_carried_on():
    engine = Engine(lambda state, batch: None)
    engine.on(Events.ITERATION_COMPLETED(at=1))(lambda state: state.stop("pause"))
    state = engine.run(DataLoader(Stream(), 1, num_workers=1), max_epochs=1)
    with pytest.raises(ValueError, match="workers 1 -> 2"):
        engine.run(DataLoader(Stream(), 1, num_workers=2), state=state)
