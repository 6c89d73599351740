"""Torch's loaders: entered anywhere without loading what is skipped, with reproducible workers."""

import gc
import logging
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
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    get_worker_info,
)

from camshaft import Engine, Events

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more than the machine has
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


def noisy_collate(samples):
    return torch.stack(samples) + random.random()


class Drawing(Sampler):
    """A sampler that draws from Python's generator whenever it is asked for an index."""

    def __iter__(self):
        return (random.randrange(23) for _ in range(23))

    def __len__(self):
        return 23


def seed_everything(seed=0):
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def seen_in(loader, stops=(), epochs=3, make=None, **arguments):
    """The batches of a run that is left at each of `stops` and carried on, with new loaders."""
    seed_everything()
    seen = []
    engine = Engine(lambda state, batch: seen.append((batch.tolist(), torch.rand(()).item())))
    for stop in stops:
        engine.on(Events.ITERATION_COMPLETED(at=stop, once=True))(lambda state: state.stop("pause"))
    state = engine.run(loader, max_epochs=epochs, **arguments)
    for number in stops:
        seed_everything(number + 99)
        state = engine.run(make() if make else loader, state=state, **arguments)
    assert state.stop_reason == "max_epochs"
    return seen


KINDS = {
    "shuffle": {"batch_size": 4, "shuffle": True},
    "collate": {"batch_size": 4, "shuffle": True, "collate_fn": noisy_collate},
    "one by one": {"batch_size": None},
    "short batches dropped": {"batch_size": 4, "shuffle": True, "drop_last": True},
    "a sampler that draws as it goes": {"batch_size": 4, "sampler": Drawing()},
    "a list of batches": {"batch_sampler": [[0, 1], [5], [2, 2, 2], [7, 8]]},
    "batch sampler": {"batch_sampler": BatchSampler(RandomSampler(range(23)), 5, False)},
}


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        *((kind, 0) for kind in KINDS),
        *(
            pytest.param(kind, 2, marks=() if kind == "shuffle" else pytest.mark.slow)
            for kind in KINDS
        ),
    ],
)
def test_a_run_left_anywhere_and_carried_on_by_new_loaders_sees_the_same(kind, workers):
    def make():
        return DataLoader(Augmented(), num_workers=workers, **KINDS[kind])

    whole = seen_in(make())
    for stops in [[1], [len(whole) // 2 + 1], [3, 4, len(whole) - 1]]:
        assert seen_in(make(), stops, make=make) == whole, stops


@pytest.mark.parametrize("data", [Augmented, pytest.param(ManyAtOnce, marks=pytest.mark.slow)])
@pytest.mark.parametrize("batch_size", [4, pytest.param(None, marks=pytest.mark.slow)])
def test_what_workers_draw_does_not_depend_on_how_many_there_are(data, batch_size):
    def make(workers, persistent=False):
        loader = {"num_workers": workers, "persistent_workers": persistent}
        return DataLoader(data(), batch_size, shuffle=True, **loader)

    one = seen_in(make(1))
    assert len({str(batch) for batch, _ in one}) == len(one)  # no two passes have the same noise
    assert seen_in(make(3)) == one
    assert seen_in(make(2, persistent=True)) == one
    assert seen_in(make(2), [2, 8], make=lambda: make(3, persistent=True)) == one


def test_carrying_on_in_mid_epoch_loads_no_sample_that_was_seen():
    for workers in (0, 2):
        data = Augmented()
        seen = seen_in(DataLoader(data, 4, shuffle=True, num_workers=workers), [3], epochs=1)
        assert len(seen) == 6
        loaded = list(data.loaded)
        prefetched = 2 * workers * 4  # by the workers of the run that was left
        assert sum(loaded) <= 23 + prefetched
        for batch, _ in seen[:1]:  # what was seen long ago was loaded once
            assert all(loaded[int(index)] == 1 for index, _ in batch)


def test_a_run_goes_on_at_batch_ten_thousand_without_loading_those_before():
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
    state = engine.run(DataLoader(Counting(), 4, shuffle=True), max_epochs=1)
    assert Counting.calls == 40_000
    engine.run(DataLoader(Counting(), 4, shuffle=True), state=state)
    assert Counting.calls == 40_008
    assert sorted(seen) == list(range(40_008))


def test_virtual_epochs_over_workers_see_the_same_after_a_resume():
    def make():
        return DataLoader(Augmented(), 4, shuffle=True, num_workers=2)

    whole = seen_in(make(), epoch_length=4)
    assert len(whole) == 12
    assert seen_in(make(), [5, 7], make=make, epoch_length=4) == whole


def test_ranks_with_the_same_seed_do_not_draw_the_same_augmentation(monkeypatch):
    from camshaft.engine import ranks

    loader = DataLoader(Augmented(), 4, num_workers=1)
    first = seen_in(loader, epochs=1)
    monkeypatch.setattr(ranks, "data_rank", lambda: 1)
    other = seen_in(loader, epochs=1)
    assert [[index for index, _ in batch] for batch, _ in first] == [
        [index for index, _ in batch] for batch, _ in other
    ]
    assert not {str(batch) for batch, _ in first} & {str(batch) for batch, _ in other}


def test_the_users_loader_is_left_as_it_is():
    loader = DataLoader(Augmented(), 4, shuffle=True, num_workers=1, persistent_workers=True)
    before = dict(vars(loader))
    seen_in(loader)
    assert vars(loader) == before
    assert len(list(loader)) == 6  # and works on its own


@pytest.fixture
def workers():
    """The workers made since the test began; those of earlier ones may wait to be collected."""
    before = set(multiprocessing.active_children())
    return lambda: set(multiprocessing.active_children()) - before


@pytest.mark.parametrize("arguments", [{}, {"epoch_length": 4}, {"max_iterations": 3}])
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


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
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


@pytest.mark.parametrize("context", ["fork", pytest.param("forkserver", marks=pytest.mark.slow)])
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
    ("loader", "doubt"),
    [
        (lambda: DataLoader(OwnGenerator(), 4, num_workers=1), "a random generator of its own"),
        (lambda: DataLoader(Augmented(), 4, num_workers=1, in_order=False), "in_order=False"),
        (
            lambda: DataLoader(Stream(), 4, num_workers=1, persistent_workers=True),
            "persistent workers",
        ),
    ],
)
def test_what_cannot_be_resumed_exactly_says_so_once_at_the_first_save(loader, doubt, caplog):
    engine = Engine(lambda state, batch: None)
    engine.on(Events.SAVING)(lambda state: None)
    engine.on(Events.ITERATION_COMPLETED)(lambda state: state.save("often"))
    with caplog.at_level(logging.WARNING, "camshaft"):
        engine.run(loader(), max_epochs=1)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("a resumed run may not be the same to the last bit: ")
    assert doubt in message


@pytest.mark.parametrize("workers", [0, 2])
def test_what_can_be_resumed_exactly_raises_no_doubt(workers, caplog):
    engine = Engine(lambda state, batch: None)
    engine.on(Events.SAVING)(lambda state: None)
    engine.on(Events.ITERATION_COMPLETED)(lambda state: state.save("often"))
    loader = {"num_workers": workers, "persistent_workers": workers > 0}
    engine.run(DataLoader(Augmented(), 4, shuffle=True, **loader), max_epochs=1)
    assert caplog.records == []


def test_a_data_set_with_a_generator_of_its_own_is_resumed_where_this_process_reads_it():
    class Own(Augmented):
        def __init__(self):
            super().__init__()
            self.mine, self.other = random.Random(4), numpy.random.default_rng(4)
            self.third = numpy.random.RandomState(4)

        def __getitem__(self, index):
            noise = self.mine.random() + self.other.random() + self.third.rand()
            return torch.tensor([index, noise], dtype=torch.float64)

    def make():
        return DataLoader(Own(), 4, shuffle=True)

    assert seen_in(make(), [3, 8], make=make) == seen_in(make())


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


def test_a_loader_with_an_iteration_of_its_own_is_read_in_its_own_way():
    class Doubling(DataLoader):
        def __iter__(self):
            return (2 * batch for batch in super().__iter__())

    def make():
        return Doubling(Augmented(), 4, shuffle=True, num_workers=2)

    whole = seen_in(make())
    assert all(index % 2 == 0 for batch, _ in whole for index, _ in batch)
    assert seen_in(make(), [3, 8], make=make) == whole
