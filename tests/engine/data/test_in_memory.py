"""Data in memory is read by one index a batch, and nothing but the time it takes can tell."""

import logging
import sys
from importlib.util import find_spec, module_from_spec

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    dataloader,
    default_collate,
    random_split,
)

from camshaft import Engine, Events, SeededSamples
from camshaft.engine.data.dataloader.samples import InMemory
from camshaft.handlers import Validate, predict

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more than the machine has
]
SIZE = 11
BY_INDEX, PLAINLY = "reads each batch by one index", "reads sample by sample"


def exact(batch):
    """All that a script can see of a batch, to the byte."""
    if isinstance(batch, torch.Tensor):
        kind = (type(batch), batch.dtype, batch.shape, batch.stride(), batch.storage_offset())
        grad = (batch.requires_grad, type(batch.grad_fn))
        return *kind, *grad, bytes(batch.detach().clone().untyped_storage())
    if isinstance(batch, dict):
        return type(batch), [(name, exact(part)) for name, part in batch.items()]
    return type(batch), [exact(part) for part in batch]


def spoil(batch):
    for part in batch.values() if isinstance(batch, dict) else batch:
        spoil(part) if isinstance(part, (list, dict)) else part.zero_()


def state_of(loader):
    own = [] if loader.generator is None else loader.generator.get_state().tolist()
    return torch.get_rng_state().tolist(), own


def by_torch(make, epochs=2):
    torch.manual_seed(5)
    loader, seen = make(), []
    for _ in range(epochs):
        seen += [(exact(batch), torch.rand(()).item()) for batch in loader]
    return seen, state_of(loader)


def by_engine(make, stops=(), epochs=2, change=lambda batch: None):
    """The batches of a run that is left at each of `stops`, and carried on with a new loader."""
    torch.manual_seed(5)
    seen = []

    def process(state, batch):
        seen.append((exact(batch), torch.rand(()).item()))
        change(batch)

    engine, loader = Engine(process), make()
    for stop in stops:
        engine.on(Events.ITERATION_COMPLETED(at=stop, once=True))(lambda state: state.stop("pause"))
    state = engine.run(loader, max_epochs=epochs)
    for stop in stops:
        torch.manual_seed(stop)
        state = engine.run(loader := make(), state=state)
    return seen, state_of(loader)


def ways(caplog):
    return {BY_INDEX if BY_INDEX in each else PLAINLY for each in caplog.messages}


def own_collate(samples):
    return default_collate(samples)


X = torch.arange(SIZE * 6.0).reshape(SIZE, 3, 2)
Y = torch.arange(SIZE)


class Renamed(TensorDataset):
    """Reads as its base does."""

    def __init__(self):
        super().__init__(X, Y)
        self.note = "more"

    def __len__(self):
        return SIZE - 1


class Negated(TensorDataset):
    def __getitem__(self, index):
        return tuple(-each for each in super().__getitem__(index))


class NegatedSubset(Subset):
    def __getitems__(self, indices):
        return [tuple(-each for each in sample) for sample in super().__getitems__(indices)]


class Growing(TensorDataset):
    """Its tensors are made anew for each sample."""

    count = 0

    def __len__(self):
        return SIZE

    @property
    def tensors(self):
        self.count += 1
        return (X + self.count,)

    @tensors.setter
    def tensors(self, tensors):
        pass


def own_items():
    pairs = TensorDataset(X, Y)
    pairs.__getitems__ = lambda indices: [(X[0], Y[0]) for _ in indices]
    return pairs


def split():
    return random_split(TensorDataset(X, Y), [8, 3], torch.Generator().manual_seed(1))[0]


SETS = {
    "pairs": (lambda: TensorDataset(X, Y), BY_INDEX),
    "one tensor": (lambda: TensorDataset(X), BY_INDEX),
    "a tensor": (lambda: X, BY_INDEX),
    "not contiguous": (lambda: TensorDataset(X.permute(0, 2, 1), X[:, ::2], Y.flip(0)), BY_INDEX),
    "expanded": (lambda: TensorDataset(torch.ones(1, 2).expand(SIZE, 2)), BY_INDEX),
    "a split": (split, BY_INDEX),
    "a subset of a subset": (lambda: Subset(split(), range(1, 7)), BY_INDEX),
    "numpy's indices": (lambda: Subset(TensorDataset(X), numpy.arange(2, 9)), BY_INDEX),
    "indices in a tensor": (lambda: Subset(X, torch.randperm(SIZE)[:7]), BY_INDEX),
    "negative places": (lambda: Subset(X, tuple(Y[:7].tolist())), BY_INDEX),
    "a stack": (lambda: StackDataset(X, split_of_all(), Y), BY_INDEX),
    "a stack by name": (lambda: StackDataset(a=Y, b=TensorDataset(X)), BY_INDEX),
    "a subclass that reads as torch": (Renamed, BY_INDEX),
    "a subclass with samples of its own": (lambda: Negated(X, Y), PLAINLY),
    "a subset with samples of its own": (
        lambda: NegatedSubset(TensorDataset(X, Y), [*range(9)]),
        PLAINLY,
    ),
    "a subset of such": (lambda: Subset(Negated(X, Y), [*range(9)]), PLAINLY),
    "a stack of such": (lambda: StackDataset(X, Negated(X, Y)), PLAINLY),
    "tensors that are computed": (lambda: Growing(X), PLAINLY),
    "items of an object's own": (own_items, PLAINLY),
    "sparse": (lambda: torch.eye(SIZE).bool(), BY_INDEX),
    "negative indices": (lambda: Subset(X, [-1, -2, 3, 4]), PLAINLY),
    "flags as indices": (lambda: Subset(Y.reshape(SIZE, 1), [True] * 4), PLAINLY),
    "conjugated": (lambda: TensorDataset(torch.complex(X, X).conj()), PLAINLY),
    "with a gradient": (lambda: TensorDataset(X.clone().requires_grad_()), PLAINLY),
    "a parameter": (lambda: TensorDataset(torch.nn.Parameter(X, requires_grad=False)), PLAINLY),
    "channels last": (
        lambda: TensorDataset(
            torch.rand(SIZE * 2, 3, 2, 2)
            .to(memory_format=torch.channels_last)
            .unflatten(0, (SIZE, 2))
        ),
        PLAINLY,
    ),
    "a list": (lambda: [*zip(X, Y, strict=True)], PLAINLY),
    "joined": (lambda: ConcatDataset([TensorDataset(X, Y), TensorDataset(X, Y)]), PLAINLY),
    "seeded": (lambda: SeededSamples(TensorDataset(X, Y)), PLAINLY),
}


def split_of_all():
    return Subset(TensorDataset(X, Y), [*reversed(range(SIZE))])


def first(names, *quick):
    """All of these, of which those that are not `quick` show more of the same."""
    marks = {name: () if name in quick else pytest.mark.slow for name in names}
    return [pytest.param(name, marks=marks[name]) for name in names]


@pytest.mark.parametrize(
    "name",
    first(
        SETS,
        *("pairs", "a split", "a stack", "a subclass with samples of its own", "a list"),
        *("with a gradient", "channels last", "items of an object's own", "negative indices"),
    ),
)
def test_batches_and_random_numbers_are_torchs_whichever_way_they_are_read(name, caplog):
    make_set, way = SETS[name]

    def make():
        torch.manual_seed(3)
        return DataLoader(make_set(), 4, shuffle=True, generator=torch.Generator().manual_seed(2))

    with caplog.at_level(logging.DEBUG, "camshaft"):
        assert by_engine(make) == by_torch(make)
    assert ways(caplog) == {way}
    if name != "tensors that are computed":  # by a count that no checkpoint holds
        assert by_engine(make, stops=[1, 4]) == by_torch(make)


COLLATED = {
    "a function of one's own": (own_collate, PLAINLY),
    "torch's by name": (default_collate, BY_INDEX),
}


@pytest.mark.parametrize("name", COLLATED)
def test_a_collate_function_of_ones_own_gets_samples(name, caplog):
    collate, way = COLLATED[name]
    with caplog.at_level(logging.DEBUG, "camshaft"):
        seen = by_engine(lambda: DataLoader(TensorDataset(X, Y), 4, collate_fn=collate))
    assert ways(caplog) == {way}
    assert seen == by_torch(lambda: DataLoader(TensorDataset(X, Y), 4, collate_fn=collate))


class Generators:
    """Each batch of indices can be read once."""

    def __len__(self):
        return 2

    def __iter__(self):
        return ((index for index in batch) for batch in ([0, 1], [2]))


SAMPLERS = {
    "generators": lambda: {"batch_sampler": Generators()},
    "none": lambda: {"batch_size": None},
    "batches as indices": lambda: {"sampler": BatchSampler(range(9), 4, False), "batch_size": None},
    "replacement": lambda: {"sampler": RandomSampler(Y, True, 7), "batch_size": 3},
    "more than there are": lambda: {"sampler": RandomSampler(Y, num_samples=25), "batch_size": 3},
    "weights": lambda: {"sampler": WeightedRandomSampler(Y + 1.0, 9), "batch_size": 3},
    "tensors": lambda: {"sampler": [*torch.tensor([3, 1, 2])], "batch_size": 2},
    "numpy": lambda: {"sampler": numpy.array([3, 1, 2]), "batch_size": 2},
    "backwards": lambda: {"sampler": [-1, -2, 3], "batch_size": 2},
    "lists": lambda: {"batch_sampler": [[1], (2, 2), [3, 0, 5]]},
    "tensors of indices": lambda: {"batch_sampler": [Y[:3], Y[4:6]]},
    "batch sampler": lambda: {"batch_sampler": BatchSampler(SequentialSampler(Y), 4, True)},
}


@pytest.mark.parametrize("name", first(SAMPLERS, "batches as indices", "tensors", "lists"))
def test_every_sampler_is_asked_as_torch_asks_it(name):
    def make():
        return DataLoader(TensorDataset(X, Y), **SAMPLERS[name]())

    assert by_engine(make) == by_torch(make)
    assert by_engine(make, stops=[2]) == by_torch(make)


BAD = {
    "out of range": {"sampler": [0, SIZE], "batch_size": 2},
    "not an index": {"sampler": ["a"], "batch_size": 1},
    "too large": {"sampler": [2**70], "batch_size": 1},
    "an empty batch": {"batch_sampler": [[]]},
    "another shape": {"sampler": [0, True], "batch_size": 2},
    "a list": {"sampler": [[0, 1]], "batch_size": None, "collate_fn": default_collate},
    "a sampler that fails": {"sampler": (1 // index for index in (1, 0)), "batch_size": 1},
}


@pytest.mark.parametrize("data", [TensorDataset(X, Y), Subset(X, [*range(SIZE)])])
@pytest.mark.parametrize("name", first(BAD, "out of range", "an empty batch"))
def test_errors_are_torchs(name, data):
    def outcome(read):
        options = BAD[name]
        if "fails" in name:
            options = {"sampler": (1 // index for index in (1, 0)), "batch_size": 1}
        try:
            read(DataLoader(data, **options))
        except Exception as error:
            return type(error), str(error)
        return None

    ours = outcome(lambda loader: Engine(lambda state, batch: None).run(loader, max_epochs=1))
    assert ours is not None or (name in ("another shape", "a list") and isinstance(data, Subset))
    assert ours == outcome(list)


def test_a_batch_that_is_changed_in_place_leaves_the_data_as_it_is():
    for data in (TensorDataset(X, Y), StackDataset(a=X, b=Subset(Y, range(SIZE)))):
        for size in (1, SIZE):
            before = X.clone(), Y.clone()
            by_engine(lambda: DataLoader(data, size), change=spoil)  # noqa: B023
            assert torch.equal(X, before[0])
            assert torch.equal(Y, before[1])


def change_tensors(data):
    data.dataset.tensors = (data.dataset.tensors[0] + 1, *data.dataset.tensors[1:])


def change_in_place(data):
    data.dataset.tensors[1].add_(1)


def change_indices(data):
    data.indices[:] = data.indices[::-1]


def change_gradient(data):
    data.dataset.tensors[0].requires_grad_()


CHANGES = [change_tensors, change_in_place, change_indices, change_gradient]


@pytest.mark.parametrize("change", CHANGES)
def test_data_that_is_changed_during_a_pass_is_read_as_it_is_then(change):
    def make():
        return Subset(TensorDataset(X.clone(), Y.clone()), [*range(8)])

    ours, torchs = [], []
    data = make()
    engine = Engine(lambda state, batch: [ours.append(exact(batch)), change(data)])
    engine.run(DataLoader(data, 2), max_epochs=2)
    data = make()
    for _ in range(2):
        for batch in DataLoader(data, 2):
            torchs.append(exact(batch))
            change(data)
    assert ours == torchs


@pytest.mark.parametrize(
    ("holder", "name"),
    [
        (torch._C, "_dispatch_keys"),
        (torch.autograd, "_profiler_enabled"),
        (dataloader._BaseDataLoaderIter, "_next_data"),
    ],
)
def test_with_a_torch_that_lacks_what_is_looked_up_the_plain_way_is_taken(
    holder, name, monkeypatch
):
    batches = iter(DataLoader(TensorDataset(torch.arange(6.0)), 2))
    if name == "_next_data":
        monkeypatch.delattr(type(batches), name)
    monkeypatch.delattr(holder, name)
    spec = find_spec(InMemory.__module__)
    other = module_from_spec(spec)  # as it is when imported now; nobody else has it
    spec.loader.exec_module(other)
    memory = other.InMemory(TensorDataset(torch.arange(6.0)), default_collate)
    assert (memory.batch([0, 1]) is None) == (name == "_dispatch_keys")
    assert (other.unrecorded(batches) is batches) == (name != "_dispatch_keys")


@pytest.mark.slow
def test_a_profiler_sees_each_batch_under_torchs_name_for_it():
    def found(read):
        with torch.profiler.profile() as profile:
            read(DataLoader(TensorDataset(X, Y), 4))
        return {
            event.key: event.count for event in profile.key_averages() if "DataLoader" in event.key
        }

    ours = found(lambda loader: Engine(lambda state, batch: None).run(loader, max_epochs=1))
    assert list(ours) == ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"]
    assert ours == found(list)


class Counting(Dataset):
    def __init__(self):
        self.asked = []

    def __len__(self):
        return SIZE

    def __getitems__(self, indices):
        self.asked.append(list(indices))
        return [float(index) for index in indices]

    def __getitem__(self, index):
        raise AssertionError


def test_a_data_set_that_gives_many_samples_at_once_is_asked_once_a_batch():
    data = Counting()
    Engine(lambda state, batch: None).run(DataLoader(data, 4), max_epochs=1)
    assert data.asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_evaluations_and_predictions_read_by_index_too(caplog, tmp_path):
    loader = DataLoader(TensorDataset(X), 4)
    engine = Engine(lambda state, batch: batch[0].sum())
    with caplog.at_level(logging.DEBUG, "camshaft"):
        engine.evaluate(loader)
        predict(engine, loader, tmp_path / "out")
        engine.add(Validate(loader))
        engine.run([[torch.ones(())]], max_epochs=1)
    # predict reads its first batch alone, too
    assert sum(BY_INDEX in message for message in caplog.messages) == 4


def calls_a_batch(loader):
    """The Python calls for which a batch more of a pass accounts, after the looks at its begin."""
    counts = []
    engine = Engine(lambda state, batch: None)
    for length in (30, 30, 30, 30, 34):  # what is asked for the first time is remembered
        kinds, before = [], sys.getprofile()
        sys.setprofile(lambda frame, event, argument: kinds.append(event))  # noqa: B023
        try:
            engine.run(loader, max_epochs=1, max_batches=length)
        finally:
            sys.setprofile(before)
        counts.append(kinds.count("call"))
    return (counts[-1] - counts[-2]) / 4


def test_the_calls_for_a_batch_in_memory_do_not_depend_on_its_size():
    pairs = TensorDataset(torch.ones(20_000, 2), torch.ones(20_000))
    few, many = (calls_a_batch(DataLoader(pairs, size)) for size in (5, 500))
    assert few == many <= 16  # half of them torch's and the engine's


@pytest.mark.quick(way=1)
@pytest.mark.parametrize("way", [BY_INDEX, PLAINLY])
def test_workers_read_by_index_too(way, tmp_path):
    """Their messages go to a file, since they are of other processes."""
    collate = None if way == BY_INDEX else own_collate

    def make():
        return DataLoader(TensorDataset(X, Y), 4, collate_fn=collate, num_workers=2)

    logger = logging.getLogger("camshaft")
    handler, level = logging.FileHandler(tmp_path / "log"), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        seen, _ = by_engine(make, epochs=1)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()
    assert seen == by_torch(make, epochs=1)[0]
    assert (tmp_path / "log").read_text().count(way) == 2


@pytest.mark.slow
def test_workers_that_are_spawned_read_by_index_too():
    def make(workers=1):
        options = {"num_workers": workers, "multiprocessing_context": "spawn" if workers else None}
        return DataLoader(split(), 3, shuffle=True, **options)

    assert by_engine(make, epochs=1) == by_torch(lambda: make(0), epochs=1)


# -- any loader ------------------------------------------------------------------------------------

DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
    *(torch.bool, torch.uint8, torch.int16, torch.int64, torch.uint32, torch.complex64),
)
SHAPES = ((), (1,), (3,), (0,), (2, 0), (2, 3), (1, 1), (2, 1, 3), (2, 1, 1, 2), (1, 2, 2, 3))


@st.composite
def tensors(draw, size):
    shape = draw(st.sampled_from(SHAPES))
    found = torch.rand(size, *shape).mul(7).to(draw(st.sampled_from(DTYPES)))
    form = draw(st.sampled_from(["as it is", "turned", "a part", "spread", "swapped"]))
    if form == "turned" and found.dim() > 2:
        return found.transpose(1, 2)
    if form == "a part":
        return torch.stack([found, found], 1).reshape(2 * size, *shape)[::2]
    if form == "spread" and size:
        return found[:1].expand(size, *shape)
    if form == "swapped" and found.dim() > 1:
        return found.transpose(0, 1).contiguous().transpose(0, 1)
    return found


@st.composite
def sets(draw, depth=2):
    size = draw(st.integers(1, 12))
    data = draw(tensors(size))
    if draw(st.booleans()):
        data = TensorDataset(*(draw(tensors(size)) for _ in range(draw(st.integers(1, 3)))))
    for _ in range(draw(st.integers(0, depth))):
        count = len(data)
        chosen = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=15))
        kinds = [list, tuple, numpy.array, torch.tensor]
        data = draw(
            st.sampled_from(
                [
                    Subset(data, draw(st.sampled_from(kinds))(chosen)),
                    StackDataset(data, Subset(data, [*range(count)])),
                    StackDataset(one=data, two=data),
                    Subset(data, range(draw(st.integers(1, count)))),
                ]
            )
        )
    return data


@st.composite
def loaders(draw):
    """A function that makes the same loader again and again."""
    data, seed = draw(sets()), draw(st.integers(0, 9))
    size, drop_last = draw(st.integers(1, 5)), draw(st.booleans())
    drop_last &= len(data) >= size
    order = draw(st.sampled_from(["in turn", "shuffled", "replaced", "repeated", "weights", "own"]))
    own_generator = draw(st.booleans())
    count = draw(st.integers(size, 30))

    def make():
        generator = torch.Generator().manual_seed(seed) if own_generator else None
        samplers = {
            "replaced": lambda: RandomSampler(data, True, count, generator),
            "repeated": lambda: RandomSampler(data, num_samples=count, generator=generator),
            "weights": lambda: WeightedRandomSampler([1.0] * len(data), count, generator=generator),
            "own": lambda: [number % len(data) for number in range(count)],
        }
        options = {"generator": generator, "drop_last": drop_last}
        if order in samplers:
            return DataLoader(data, size, sampler=samplers[order](), **options)
        return DataLoader(data, size, shuffle=order == "shuffled", **options)

    return make


@pytest.mark.slow
@settings(max_examples=200)
@given(loaders(), st.data())
def test_any_loader_gives_torchs_batches_also_from_the_middle_on(make, data):
    whole = by_torch(make)
    assert by_engine(make) == whole
    stop = data.draw(st.integers(1, len(whole[0])))
    assert by_engine(make, stops=[stop]) == whole
