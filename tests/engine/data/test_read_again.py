"""What a resumed run draws or reads again is what it has consumed; else the run says so."""

import random
from types import SimpleNamespace

import pytest
import torch
import torchdata.nodes
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
)
from torchdata.stateful_dataloader import StatefulDataLoader

from camshaft import Engine, Events, State
from camshaft.engine.data.dataloader import shared_samples
from camshaft.handlers import Checkpoint

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.set_vital. is deprecated"),  # by torchdata 0.11
]


def part(make, stop=None, saved=None, *, objects=None, seed=1, change=None, **arguments):
    """The batches of a part of a run, in a process of its own, and the state that it leaves."""
    torch.manual_seed(seed)
    random.seed(seed)
    data, seen, state = make(), [], State(max_epochs=3)
    engine = Engine(lambda state, batch: seen.append((plain(batch), torch.rand(()).item())))
    engine.objects.update(objects(data) if objects else {})
    if saved is not None:
        position, states = saved
        state.load_state_dict(position)
        state.control.end = state.stop_reason = None
        for name, each in engine.objects.items():
            each.load_state_dict(states[name])
    if change is not None:
        change(engine, data)
    if stop is not None:
        when = Events.ITERATION_COMPLETED(at=stop) if isinstance(stop, int) else stop
        engine.on(when)(lambda state: state.stop("pause"))
    engine.run(data, state=state, **arguments)
    left = {name: each.state_dict() for name, each in engine.objects.items()}
    return seen, (state.state_dict(), left)


def plain(batch):
    return batch.tolist() if isinstance(batch, torch.Tensor) else batch


def resumed(make, stop, **arguments):
    """The batches of a run that is left and carried on by another process."""
    first, saved = part(make, stop, **arguments)
    return first + part(make, None, saved, seed=9, **arguments)[0]


class Counting(IterableDataset):
    """Counts its passes, and shuffles by their number."""

    passes = -1

    def __iter__(self):
        self.passes += 1
        order = torch.Generator().manual_seed(self.passes)
        return iter(torch.randperm(20, generator=order).tolist())


class Told(Counting):
    def set_epoch(self, epoch):
        self.passes = epoch - 1


def test_a_data_set_that_counts_its_passes_is_refused_and_one_that_is_told_is_exact():
    assert (
        resumed(lambda: DataLoader(Counting(), 4), 3) == part(lambda: DataLoader(Counting(), 4))[0]
    )
    with pytest.raises(ValueError, match=r"batch 3 of epoch 2.* DataLoader gives something else"):
        resumed(lambda: DataLoader(Counting(), 4), 7)
    whole, _ = part(lambda: DataLoader(Told(), 4))
    for stop in (3, 5, 6, 7, 10, 14):
        assert resumed(lambda: DataLoader(Told(), 4), stop) == whole


MANY = range(10**9)
"""So many that two draws never begin alike."""


class Rows:
    """Rows of many, which no checkpoint can bring back."""

    def __iter__(self):
        return iter(random.SystemRandom().sample(MANY, 20))


class Stream(Rows, IterableDataset):
    pass


class Order(Rows, Sampler):
    def __len__(self):
        return 20


OTHERWISE = {
    "sampler": lambda: DataLoader(MANY, 4, sampler=Order()),
    "sampler, with workers": lambda: DataLoader(MANY, 4, sampler=Order(), num_workers=2),
    "stream": lambda: DataLoader(Stream(), 4),
    "stream, with workers": lambda: DataLoader(Stream(), 4, num_workers=2),
    "rows": Rows,
}


@pytest.mark.quick(kind=4)
@pytest.mark.parametrize("kind", OTHERWISE)
def test_data_that_begin_an_epoch_otherwise_are_told_of_between_two_epochs(kind, caplog):
    resumed(OTHERWISE[kind], Events.EPOCH_COMPLETED(at=1))
    owner = {"sampler": "Order", "rows": "Rows"}.get(kind.partition(",")[0], "DataLoader")
    assert f"begun again, epoch 1 has another first batch, by the {owner}, " in caplog.text


class Labels(Dataset):
    """Numbers its labels, and adds noise; `numbers` differ where they come from a set."""

    numbers = (0, 1, 2, 3)

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.tensor([index + torch.rand(()).item(), self.numbers[index % 4]])


LABELS = {
    "samples": lambda **options: DataLoader(Labels(), 4, shuffle=True, **options),
    "workers": lambda **options: DataLoader(Labels(), 4, num_workers=2, **options),
    "persistent": lambda: LABELS["workers"](persistent_workers=True),
    "list": lambda: [*DataLoader(Labels.numbers, 2)],
}


@pytest.mark.quick(kind=1)
@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("stop", [3, 5, 7, Events.EPOCH_COMPLETED(at=2)])
def test_samples_that_another_process_numbers_otherwise_are_told_of(
    kind, stop, caplog, monkeypatch
):
    arguments = {"stop": stop} if kind != "list" else {"stop": Events.EPOCH_COMPLETED(at=1)}
    make, whole = LABELS[kind], part(LABELS[kind])[0]
    assert resumed(make, **arguments) == whole
    assert not caplog.records
    _, saved = part(make, **arguments)
    monkeypatch.setattr(Labels, "numbers", (1, 0, 2, 3))
    part(make, None, saved)
    (record,) = caplog.records
    said = "has another first batch, by the list" if kind == "list" else "number them by sorted"
    assert said in record.getMessage()


def test_samples_that_draw_are_told_of_if_workers_come_and_others_are_not(caplog):
    _, saved = part(LABELS["samples"], 7)
    part(lambda: LABELS["samples"](num_workers=1), None, saved)
    assert "draw random numbers, workers draw others" in caplog.text
    caplog.clear()
    _, saved = part(lambda: DataLoader(range(20), 4, shuffle=True), 7)
    part(lambda: DataLoader(range(20), 4, shuffle=True, num_workers=1), None, saved)
    assert not caplog.records


def test_another_batch_size_between_two_epochs_and_a_grown_data_set_are_not_told_of(caplog):
    for changed in (lambda: DataLoader(range(20), 5), lambda: DataLoader(range(24), 4)):
        _, saved = part(lambda: DataLoader(range(20), 4), Events.EPOCH_COMPLETED(at=1))
        part(changed, None, saved)
    assert not caplog.records


class Columns(Dataset):
    """Samples with columns in the order of a set, and files in the folder of a job."""

    columns, folder = ("x", "file"), "/tmp/job-1"

    def __len__(self):
        return 20

    def __getitem__(self, index):
        sample = {"x": index, "file": f"{self.folder}/{index}.png"}
        return {name: sample[name] for name in self.columns}


class StreamOfColumns(IterableDataset):
    def __iter__(self):
        return map(Columns().__getitem__, range(20))


@pytest.mark.parametrize("kind", [Columns, StreamOfColumns])
@pytest.mark.parametrize("stop", [3, Events.EPOCH_COMPLETED(at=2)])
def test_other_folders_and_another_order_of_columns_are_not_told_of(
    kind, stop, caplog, monkeypatch
):
    seen, saved = part(lambda: DataLoader(kind(), 4), stop)
    monkeypatch.setattr(Columns, "columns", Columns.columns[::-1])
    monkeypatch.setattr(Columns, "folder", "/tmp/job-2")
    rest, _ = part(lambda: DataLoader(kind(), 4), None, saved)
    assert len(seen + rest) == 15
    assert not caplog.records


@pytest.mark.parametrize(
    "make",
    [
        lambda order: DataLoader(range(40), 4, sampler=order),
        lambda order: DataLoader(range(40), batch_sampler=BatchSampler(order, 4, False)),
        lambda order: DataLoader(range(40), batch_sampler=([i, i + 1] for i in order)),
    ],
    ids=["sampler", "inside", "batches"],
)
def test_an_order_that_can_be_drawn_once_is_not_begun_to_be_compared(make, caplog):
    def begin():
        return make(iter(torch.randperm(39).tolist()))

    first, saved = part(begin, 3)
    assert first + part(begin, 8, saved)[0] == part(begin, 8)[0]
    assert not caplog.records


class Late(Sampler):
    """Makes its random generator as the first pass is drawn."""

    generator = None

    def __len__(self):
        return 20

    def __iter__(self):
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(3)
        return iter(torch.randperm(20, generator=self.generator).tolist())


def test_a_generator_that_is_made_as_the_pass_is_drawn_is_not_told_of(tmp_path, caplog):
    def run(directory, stop=None):
        torch.manual_seed(1)
        seen = []
        engine = Engine(lambda state, batch: seen.append(batch.tolist()))
        engine.objects["model"] = torch.nn.Linear(1, 1)
        engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED, resume=True))
        if stop is not None:
            when = Events.ITERATION_COMPLETED(at=stop)
            engine.on(when)(lambda state: state.stop("pause", resumable=True))
        engine.run(DataLoader(Labels(), 4, sampler=Late()), max_epochs=2)
        return seen

    assert run(tmp_path / "cut", 3) + run(tmp_path / "cut") == run(tmp_path / "whole")
    assert not caplog.records


@pytest.mark.parametrize("workers", [0, 1])
def test_a_first_batch_that_cannot_be_read_again_is_told_of(workers, caplog, monkeypatch):
    def make():
        return DataLoader(Labels(), 4, num_workers=workers)

    whole, (seen, saved) = part(make)[0], part(make, 3)

    def read(self, index):
        if index == 0 and self.is_gone:
            raise FileNotFoundError("0.png")
        return torch.tensor([index + torch.rand(()).item(), self.numbers[index % 4]])

    monkeypatch.setattr(Labels, "is_gone", True, raising=False)
    monkeypatch.setattr(Labels, "__getitem__", read)

    def back(engine, data):
        engine.on(Events.EPOCH_STARTED)(lambda state: setattr(Labels, "is_gone", False))

    assert seen + part(make, None, saved, seed=9, change=back)[0] == whole
    (record,) = caplog.records
    assert "cannot be read again" in record.getMessage()
    assert "FileNotFoundError" in record.getMessage()
    assert "0.png)" in record.getMessage()


@pytest.mark.parametrize("make", [lambda: DataLoader(Counting(), 4), Rows], ids=["counts", "rows"])
def test_a_source_of_the_same_process_is_not_begun_once_more(make, caplog):
    begun, data = [], make()
    kind = Counting if isinstance(data, DataLoader) else Rows
    engine = Engine(lambda state, batch: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__iter__", noting(kind.__iter__, begun))
        state = engine.run(data, max_epochs=1)
        for epochs in (2, 3):
            engine.run(data, state=state, max_epochs=epochs)
    assert len(begun) == 3
    assert not caplog.records


def noting(begin, begun):
    def begin_and_note(self):
        begun.append(self)
        return begin(self)

    return begin_and_note


def test_a_data_set_that_counts_its_passes_is_told_of_behind_epoch_2(caplog):
    resumed(lambda: DataLoader(Counting(), 4), Events.EPOCH_COMPLETED(at=2))
    assert "epoch 2 has another first batch, by the DataLoader" in caplog.text


def test_a_run_that_was_saved_before_checksums_goes_on():
    first, (position, states) = part(lambda: DataLoader(range(20), 4, shuffle=True), 7)
    for name in ("mark", "usual", "parts"):
        del position["position"][name]
    second, _ = part(lambda: DataLoader(range(20), 4, shuffle=True), None, (position, states))
    assert first + second == part(lambda: DataLoader(range(20), 4, shuffle=True))[0]


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_batches_that_have_changed_are_refused_in_the_middle_of_an_epoch(kind):
    _, saved = part(lambda: kind([torch.full((2,), float(n)) for n in range(9)]), 4)
    with pytest.raises(ValueError, match="gives something else"):
        part(lambda: kind([torch.full((2,), n + 1.0) for n in range(9)]), None, saved)
    same, _ = part(lambda: kind([torch.full((2,), float(n)) for n in range(9)]), None, saved)
    assert [batch for batch, _ in same[:5]] == [[float(n)] * 2 for n in range(4, 9)]


def test_a_step_may_change_the_batches_of_a_list():
    data, seen = [{"x": torch.ones(2) * number} for number in range(5)], []

    def process(state, batch):
        batch["x"] += 1
        seen.append(batch["x"][0].item())

    engine = Engine(process)
    state = engine.run(data, max_iterations=7)
    engine.run(data, state=state, max_iterations=10)
    assert seen == [1, 2, 3, 4, 5, 2, 3, 4, 5, 6]


def test_a_run_that_writes_into_the_batches_of_a_list_is_told_of_at_its_first_save(
    tmp_path, caplog
):
    def adds(batch):
        batch["doubled"] = batch["x"] * 2

    def writes(batch):
        batch["x"] *= 2

    def grows(batch):
        if len(data) < 7:
            data.append({"x": torch.ones(2)})

    for name, step in (("adds", adds), ("grows", grows), ("writes", writes)):
        data = [{"x": torch.ones(2) * number} for number in range(5)]
        engine = Engine(lambda state, batch, step=step: step(batch))
        engine.add(Checkpoint(tmp_path / name))
        engine.run(data, max_epochs=2)
        assert ("writes into the batches of a list" in caplog.text) == (name == "writes")


@pytest.mark.parametrize("rows", [8, 14])
def test_a_stream_that_grows_at_its_end_goes_on(rows):
    first, saved = part(lambda: (number for number in range(8)), 5)
    second, _ = part(lambda: (number for number in range(rows)), None, saved)
    assert [batch for batch, _ in first + second] == [*range(rows)]


class Buckets(Sampler):
    """Batches of indices, each shuffled in place when it is drawn; the script shuffles them too."""

    def __init__(self):
        self.buckets = [[3 * number + each for each in range(3)] for number in range(8)]

    def __iter__(self):
        for bucket in self.buckets:
            random.Random(str(bucket)).shuffle(bucket)
            yield [*bucket]

    def __len__(self):
        return 8

    def state_dict(self):
        return {"buckets": [[*bucket] for bucket in self.buckets]}

    def load_state_dict(self, saved):
        self.buckets = [[*bucket] for bucket in saved["buckets"]]


def shuffled_after_each_epoch(engine, data):
    order = random.Random(3)

    @engine.on(Events.EPOCH_COMPLETED)
    def shuffle(state):
        for _ in range(state.epoch):
            order.shuffle(data.batch_sampler.buckets)


@pytest.mark.quick(stop=1)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [3, 10, 20])
def test_a_sampler_in_the_objects_is_put_back_to_the_beginning_of_the_pass(stop, workers):
    def make():
        return DataLoader(range(24), batch_sampler=Buckets(), num_workers=workers)

    arguments = {"objects": lambda data: {"sampler": data.batch_sampler}}
    whole, _ = part(make, **arguments)
    assert resumed(make, stop, **arguments) == whole


def test_a_sampler_that_the_script_changes_between_epochs_is_refused_unless_it_is_saved():
    def make():
        return DataLoader(range(24), batch_sampler=Buckets())

    with pytest.raises(ValueError, match="batch 3 of epoch 2.* the Buckets gives something else"):
        resumed(make, 10, change=shuffled_after_each_epoch)


class ItsOwnIterator(Sampler):
    """Begins anew by each `iter`, as samplers of lhotse do."""

    def __iter__(self):
        self.at = 0
        return self

    def __next__(self):
        if self.at == 20:
            raise StopIteration
        self.at += 1
        return self.at


def test_a_sampler_that_is_its_own_iterator_goes_on_where_it_was():
    def make():
        return DataLoader(range(21), batch_size=None, sampler=ItsOwnIterator())

    whole, _ = part(make)
    for stop in (3, 5, 7):
        assert resumed(make, stop) == whole


class OneOrder(Sampler):
    """Every iterator reads on in one generator, as those of mmengine's InfiniteSampler do."""

    def __init__(self):
        self.indices = self.endless()

    def endless(self):
        order = torch.Generator()
        while True:
            yield from torch.randperm(12, generator=order).tolist()

    def __iter__(self):
        yield from self.indices


@pytest.mark.parametrize("stop", [3, 7, 9])
def test_a_sampler_whose_iterators_share_a_generator_is_asked_for_one_alone(stop):
    def make():
        return DataLoader(range(12), 3, sampler=OneOrder())

    whole, _ = part(make, epoch_length=6)
    assert len(whole) == 18
    assert resumed(make, stop, epoch_length=6) == whole


class Feedback(Sampler):
    """Draws an epoch's order from weights that the training changes meanwhile."""

    def __init__(self):
        self.weights = torch.ones(12)

    def __iter__(self):
        return iter(torch.multinomial(self.weights, 12, True).tolist())

    def __len__(self):
        return 12

    def state_dict(self):
        return {"weights": self.weights.clone()}

    def load_state_dict(self, saved):
        self.weights = saved["weights"].clone()


@pytest.mark.parametrize("stop", [1, 2, 4, 6])
def test_what_the_training_tells_a_sampler_meanwhile_is_kept(stop):
    def learn(engine, data):
        @engine.on(Events.ITERATION_COMPLETED)
        def tell(state):
            data.sampler.weights[state.iteration % 12] += 5

    def make():
        return DataLoader(range(12), 3, sampler=Feedback())

    arguments = {"objects": lambda data: {"sampler": data.sampler}, "change": learn}
    assert resumed(make, stop, **arguments) == part(make, **arguments)[0]


class Wrapper:
    """A loader inside of another one, which changes its batches."""

    def __init__(self, *loaders):
        self.parts = {"loaders": [*loaders]}

    def __len__(self):
        return min(map(len, self.parts["loaders"]))

    def __iter__(self):
        for batches in zip(*self.parts["loaders"], strict=True):
            yield [plain(batch) for batch in batches]


def with_generator():
    return DataLoader(range(9), 2, shuffle=True, generator=torch.Generator().manual_seed(3))


class ByEpoch(Sampler):
    """Gives more, or fewer, in each epoch."""

    epoch = 0

    def __init__(self, step=3, first=6):
        self.step, self.first = step, first

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.first + self.step * self.epoch

    def __iter__(self):
        order = torch.Generator().manual_seed(self.epoch)
        return iter(torch.randperm(len(self), generator=order).tolist())


WRAPPED = {
    "one": lambda: Wrapper(with_generator()),
    "two": lambda: Wrapper(with_generator(), with_generator()),
    "two deep": lambda: Wrapper(Wrapper(with_generator())),
    "told its epoch": lambda: Wrapper(DataLoader(range(99), 2, sampler=ByEpoch())),
    "told its epoch, deep": lambda: Wrapper(Wrapper(DataLoader(range(99), sampler=ByEpoch()))),
}


@pytest.mark.parametrize("kind", WRAPPED)
@pytest.mark.parametrize("epoch_length", [None, 4])
def test_loaders_in_wrappers_and_lists_are_found(kind, epoch_length):
    whole, _ = part(WRAPPED[kind], epoch_length=epoch_length)
    for stop in (2, 5, 6, 9):
        assert resumed(WRAPPED[kind], stop, epoch_length=epoch_length) == whole


@pytest.mark.parametrize("step", [2, -2])
def test_lengths_are_asked_after_set_epoch(step, caplog):
    def make():
        return DataLoader(range(99), 2, sampler=ByEpoch(step, 8))

    lengths = []

    def note(engine, data):
        engine.on(Events.EPOCH_STARTED)(lambda state: lengths.append(state.epoch_length))

    whole, _ = part(make, change=note)
    assert lengths == [4, 4 + step // 2, 4 + step]
    for stop in range(1, len(whole)):
        assert resumed(make, stop) == whole
    assert not caplog.records


def test_a_length_that_cannot_be_told_is_not_known_whatever_it_raises():
    class Unknown(Wrapper):
        def __len__(self):
            raise ValueError("undefined")

    whole, _ = part(lambda: Unknown(with_generator()))
    assert len(whole) == 15


class Lazy(DataLoader):
    """A loader with a state, whose pass begins with its first batch."""

    first = given = 0
    rewinds = True

    def __iter__(self):
        self.given, self.first = self.first, 0
        self.dataset.first = self.given * self.batch_size
        for batch in super().__iter__():
            self.given += 1
            yield batch
        if self.rewinds:
            self.given = 0

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, saved):
        self.first = saved["given"]


class Staying(Lazy):
    rewinds = False


class From(IterableDataset):
    first = 0

    def __iter__(self):
        return iter(range(self.first, 20))


class Node:
    """A pass of numbers, whose state is applied by the next `iter`."""

    def __new__(cls, generator=None):
        node = torchdata.nodes.SamplerWrapper(RandomSampler(range(20), generator=generator))
        return torchdata.nodes.Loader(torchdata.nodes.Batcher(node, 4))


class Epochs:
    """Begins at once and counts its passes in its state."""

    def __init__(self):
        self.epoch = self.at = 0

    def __iter__(self):
        self.epoch += self.at == 0
        return self.batches(self.epoch)

    def batches(self, epoch):
        while self.at < 5:
            self.at += 1
            yield 100 * epoch + self.at
        self.at = 0

    def state_dict(self):
        return {"epoch": self.epoch, "at": self.at}

    def load_state_dict(self, saved):
        self.epoch, self.at = saved["epoch"], saved["at"]


STATEFUL = {
    "lazy": lambda: Lazy(From(), 4),
    "lazy, at its end": lambda: Staying(From(), 4),
    "nodes": Node,
    "lazy, with workers": lambda: Lazy(From(), 4, num_workers=1),
    "nodes, with a generator": lambda: Node(torch.Generator().manual_seed(3)),
    "counting": Epochs,
    "torchdata": lambda: StatefulDataLoader(range(20), 4, shuffle=True),
}


@pytest.mark.quick(kind=3)
@pytest.mark.parametrize("kind", STATEFUL)
def test_loaders_with_a_state_go_on_exactly_wherever_they_are_left(kind, caplog):
    whole, _ = part(STATEFUL[kind])
    for stop in (1, 3, 4, 6, 9, 10, 14, 5):
        assert resumed(STATEFUL[kind], stop) == whole, stop
    assert not caplog.records


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(2, 1), (0, 2), (2, 0)])
def test_another_number_of_workers_is_right_between_epochs_and_refused_inside(before, after):
    def make(workers):
        return lambda: StatefulDataLoader(range(20), 4, shuffle=True, num_workers=workers)

    first, saved = part(make(before), 5)
    second, _ = part(make(after), None, saved)
    if min(before, after) > 0:
        assert first + second == part(make(before))[0]
    for epoch in (second[:5], second[5:]):
        assert sorted(one for batch, _ in epoch for one in batch) == [*range(20)]
    _, saved = part(make(before), 7)
    with pytest.raises(ValueError, match=f"workers {before} -> {after}"):
        part(make(after), None, saved)


class Shuffled(IterableDataset):
    """Gives numbers by a shuffle buffer, and forgets it in its state."""

    def __init__(self):
        self.buffer_size, self.read = 6, 0

    def __iter__(self):
        buffer = []
        while self.read < 24:
            self.read += 1
            buffer.append(self.read)
            if len(buffer) == self.buffer_size:
                yield buffer.pop(0)
        yield from buffer
        self.read = 0

    def state_dict(self):
        return {"read": self.read}

    def load_state_dict(self, saved):
        self.read = saved["read"]


def test_a_buffer_that_the_state_may_lose_is_told_of_and_so_is_a_short_epoch(doubts, caplog):
    def make():
        return StatefulDataLoader(Shuffled(), 4)

    (message,) = doubts(make())
    assert "a Shuffled holds samples in a buffer" in message
    assert "camshaft prove" in message
    caplog.clear()
    assert resumed(make, 8) != part(make)[0]
    (record,) = caplog.records
    assert "the resumed epoch 2 has ended after 5 batches instead of 6" in record.getMessage()


def test_a_lazy_loader_whose_batches_draw_says_so(doubts):
    class Drawing(From):
        def __iter__(self):
            for number in super().__iter__():
                yield number + random.random()

    assert doubts(Lazy(From(), 4)) == []
    (message,) = doubts(Lazy(Drawing(), 4))
    assert "draws a seed when its first batch is asked for" in message


def one_ahead(loader):
    before = None
    for batch in loader:
        if before is not None:
            yield before
        before = batch
    yield before


def in_pairs(loader):
    batches = iter(loader)
    return zip(batches, batches, strict=True)


class OneAhead:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        self.batches = iter(self.loader)
        self.next = next(self.batches, None)
        return self

    def __next__(self):
        if (batch := self.next) is None:
            raise StopIteration
        self.next = next(self.batches, None)
        return batch


class Noisy(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index + torch.rand(())


@pytest.mark.parametrize("make", [lambda loader: Wrapped(loader, one_ahead), OneAhead])
def test_batches_that_are_read_and_drawn_ahead_of_the_run_are_told_of(make, doubts, caplog):
    (message,) = doubts(make(DataLoader(Noisy(), 2)))
    assert "reads batches ahead of the run" in message
    caplog.clear()
    assert doubts(make(DataLoader(range(8), 2, shuffle=True))) == []  # drawn as the pass begins
    assert doubts(Wrapped(DataLoader(Noisy(), 2), iter)) == []
    assert doubts(Wrapped(DataLoader(Noisy(), 1), in_pairs)) == []  # reads two, and is not ahead


class Wrapped:
    def __init__(self, loader, read):
        self.loader, self.read = loader, read

    def __iter__(self):
        return iter(self.read(self.loader))


class Deep(Dataset):
    def __init__(self):
        self.transforms = [SimpleNamespace(noise=random.Random(1))]

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index + self.transforms[0].noise.random()


def test_a_generator_at_any_depth_of_a_data_set_that_workers_copy_is_told(doubts):
    assert doubts(DataLoader(Deep(), 4)) == []
    (message,) = doubts(DataLoader(Deep(), 4, num_workers=1))
    assert "a random generator of its own (self.transforms[0].noise)" in message


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_batches_of_any_kind_are_looked_at_without_an_error():
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    batches = [ragged, torch.eye(3).to_sparse(), torch.ones(0, 2), None, {1: [object()]}, "text"]

    class Any(IterableDataset):
        def __iter__(self):
            return iter(batches)

    seen = []
    Engine(lambda state, batch: seen.append(batch)).run(DataLoader(Any(), None), max_epochs=1)
    assert len(seen) == len(batches)


class Named(Dataset):
    """Samples by any keys."""

    def __init__(self, keys, size=2):
        self.keys, self.size = keys, size

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, key):
        return str(key)

    def batches(self):
        for start in range(0, len(self.keys), self.size):
            yield self.keys[start : start + self.size]


@pytest.mark.parametrize("keys", [torch.arange(8), "abcdefgh", [(n, 1) for n in range(8)]])
@pytest.mark.parametrize("size", [None, 3])
def test_indices_of_any_kind_are_compared(keys, size):
    class Shuffled(Sampler):
        def __len__(self):
            return 8

        def __iter__(self):
            return (keys[place] for place in torch.randperm(8))

    for make in (
        lambda: DataLoader(Named(keys), size, sampler=Shuffled()),
        lambda: DataLoader(Named(keys), batch_sampler=[*Named(keys).batches()]),
    ):
        whole, _ = part(make)
        for stop in (1, 2, 6):
            assert resumed(make, stop) == whole


def test_the_checksum_of_indices_does_not_depend_on_their_batches():
    first, saved = part(lambda: DataLoader(range(24), 4, shuffle=True), 2)
    second, _ = part(lambda: DataLoader(range(24), 8, shuffle=True), None, saved)
    samples = [one for batch, _ in first + second[:2] for one in batch]
    assert sorted(samples) == [*range(24)]


@pytest.mark.parametrize("number", [3, 31, 288, 299])
def test_a_list_of_which_one_batch_is_another_is_refused(tmp_path, number):
    def run(data, **limits):
        saves = Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED(every=10), resume=True)
        Engine(lambda state, batch: None, saves).run(data, **limits)

    data = [torch.tensor([float(each)]) for each in range(300)]
    run(data, max_iterations=10)
    data[number] = torch.tensor([-1.0])
    with pytest.raises(ValueError, match="gives something else"):
        run(data, max_epochs=1)


class NotCopied(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index

    def __reduce_ex__(self, protocol):
        raise TypeError("it holds a connection")


def test_samples_that_cannot_be_copied_are_not_known_and_no_error():
    assert shared_samples(DataLoader(NotCopied(), 2)) == 0
    assert shared_samples(DataLoader(range(8), 2)) == shared_samples(DataLoader(range(8), 2)) > 0
