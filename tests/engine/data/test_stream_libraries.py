"""Streams of Hugging Face's datasets and of webdataset, alone and as shards of a stream."""

import itertools
import warnings

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from camshaft import Engine, Events, ShardedStream, State

pytestmark = [
    pytest.mark.filterwarnings("ignore:.set_vital. is deprecated"),  # by torchdata 0.11
    # webdataset leaves its files to the garbage collector
    pytest.mark.filterwarnings("ignore:.*tar:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file .*tar:ResourceWarning"),
]

SIZES = [5, 9, 6, 12, 3, 8]
IDS = sorted(100 * shard + place for shard, size in enumerate(SIZES) for place in range(size))


def made(files):
    for shard in files:
        for place in range(SIZES[shard]):
            yield {"id": 100 * shard + place}


def hugging_face(of=made):
    """An `IterableDataset` of six shards."""
    datasets = pytest.importorskip("datasets")
    return datasets.IterableDataset.from_generator(of, gen_kwargs={"files": [*range(6)]})


@pytest.fixture
def tars(tmp_path):
    """Six files of webdataset."""
    webdataset = pytest.importorskip("webdataset")
    names = [str(tmp_path / f"{shard}.tar") for shard in range(6)]
    for shard, name in enumerate(names):
        with webdataset.TarWriter(name) as tar:
            for sample in made([shard]):
                tar.write({"__key__": f"{sample['id']:04}", "json": sample})
    return names


def of_datasets(stream, **options):
    def read(shard, start):
        return stream.shard(num_shards=stream.num_shards, index=shard).skip(start)

    return ShardedStream(range(stream.num_shards), read, **{"shuffle_buffer": 8, **options})


def of_webdataset(tars, **options):
    import webdataset

    def read(tar):
        samples = webdataset.WebDataset(tar, shardshuffle=False, nodesplitter=None)
        return samples.decode().map(lambda sample: sample["json"])

    return ShardedStream(tars, read, **{"shuffle_buffer": 8, **options})


def test_a_webdataset_that_makes_batches_itself_is_no_stream_of_samples(tars):
    import webdataset

    samples = webdataset.WebDataset(tars, shardshuffle=False, nodesplitter=None).decode()
    engine = Engine(lambda state, batch: None)
    assert engine.run(samples.batched(3), max_epochs=1).iteration > 0
    with pytest.warns(UserWarning, match="a WebDataset, so each of its items is taken for a batch"):
        engine.run(samples, max_epochs=1)


@pytest.fixture
def make(request, tars):
    """Makes a stream over shards of one of the libraries, for a rank of so many."""

    def make(count=1, rank=0, **options):
        data = of_datasets(hugging_face()) if request.param == "datasets" else of_webdataset(tars)
        data.deal_to(count, rank)
        return DataLoader(data, 3, **options)

    return make


def part(data, saved=None, stop_at=None, epochs=2):
    """The samples of each batch of a part of a run, and the state in which it is left."""
    seen, state = [], State()
    engine = Engine(lambda state, batch: seen.append((state.epoch, batch["id"].tolist())))
    if saved is not None:
        state.load_state_dict(saved)
    if stop_at is not None:
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.stop("enough", resumable=True))
    torch.manual_seed(1)
    engine.run(data, max_epochs=epochs, state=state)
    return seen, state.state_dict()


def flat(*parts):
    return sorted(one for part in parts for _, batch in part for one in batch)


both = pytest.mark.parametrize("make", ["datasets", "webdataset"], indirect=True)


@pytest.mark.quick(make=1, workers=1)
@both
@pytest.mark.parametrize("workers", [0, 2])
def test_shards_of_a_library_resume_anywhere_and_each_sample_comes_once(make, workers):
    whole, _ = part(make(num_workers=workers))
    for epoch in (1, 2):
        assert flat([each for each in whole if each[0] == epoch]) == IDS
    for stop_at in (2, 9, len(whole) - 3):
        first, saved = part(make(num_workers=workers), stop_at=stop_at)
        assert first + part(make(num_workers=workers), saved)[0] == whole


@both
@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 3)])
def test_they_go_on_on_another_number_of_ranks(make, before, after):
    parts = [part(make(before, rank), stop_at=2, epochs=1) for rank in range(before)]
    saved = parts[0][1]
    saved["position"]["told_by_ranks"] = [each["position"]["told"] for _, each in parts]
    others = [part(make(after, rank), saved, epochs=1)[0] for rank in range(after)]
    assert flat(*(seen for seen, _ in parts), *others) == IDS


OWN_STATE = {
    "read again": lambda stream: DataLoader(stream, 4),
    "read again by workers": lambda stream: DataLoader(stream, 4, num_workers=2),
    "torchdata": lambda stream: StatefulDataLoader(stream, 4),
    "torchdata with workers": lambda stream: StatefulDataLoader(stream, 4, num_workers=2),
    "batches": lambda stream: stream.batch(4).with_format("torch"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OWN_STATE)
@pytest.mark.filterwarnings("ignore:the data is a IterableDataset, so each of its items")
def test_a_stream_of_hugging_face_resumes_by_its_own_state_on_as_many_ranks_alone(kind):
    def run(*arguments, **options):
        with warnings.catch_warnings():  # of its formatter, about tensors that are tensors already
            warnings.filterwarnings("ignore", "To copy construct from a tensor", UserWarning)
            return part(OWN_STATE[kind](hugging_face()), *arguments, **options)

    whole, _ = run()
    assert flat(whole) == sorted(IDS + IDS)
    for stop_at in (2, len(whole) - 2):
        first, saved = run(stop_at=stop_at)
        assert first + run(saved)[0] == whole
    saved["position"]["dealing"]["ranks"] = 2
    with pytest.raises(ValueError, match="cannot carry on on 1 ranks what 2 ranks have left"):
        run(saved)


def test_a_resume_of_hugging_face_reads_no_earlier_shard_again():
    read = []

    def noted(files):
        for sample in made(files):
            read.append(sample["id"])
            yield sample

    def data():
        return DataLoader(of_datasets(hugging_face(noted), shuffle_buffer=0), 3)

    first, saved = part(data(), stop_at=8, epochs=1)
    read.clear()
    rest, _ = part(data(), saved, epochs=1)
    assert flat(first, rest) == IDS
    shards = {shard for shard, _ in itertools.groupby(one // 100 for one in read)}
    assert shards == {3, 4, 5}  # 24 of the samples are in the first four, and the fourth has 12
