"""datasets: tables in memory and streams."""

import numpy as np
import torch
from crossing import exact, told, trained_on
from datasets import Dataset, interleave_datasets
from torchdata.stateful_dataloader import StatefulDataLoader


def table():

    generator = np.random.default_rng(5)
    features = generator.normal(size=(44, 8)).astype("float32")
    return Dataset.from_dict({"features": features, "classes": features[:, :4].argmax(1)})


def pairs(loader_class, data, **options):
    """A loader of batches (features, classes)."""

    def collate(rows):
        features = torch.tensor(np.array([row["features"] for row in rows]), dtype=torch.float32)
        return features, torch.tensor([int(row["classes"]) for row in rows])

    return loader_class(data, 4, collate_fn=collate, **options)


@exact("datasets", "Data", "DataLoader(table.with_transform(augment), shuffle=True, num_workers=2)")
def test_table(folder):
    """A Dataset with a transform that draws random numbers, in two workers."""

    def augment(rows):
        noisy = np.array(rows["features"], dtype="float32")
        return rows | {"features": noisy + np.random.normal(0, 0.1, noisy.shape)}

    torch.manual_seed(0)
    data = table().with_transform(augment)
    return trained_on(pairs(torch.utils.data.DataLoader, data, shuffle=True, num_workers=2))


@exact("datasets", "Data", "DataLoader(stream.shuffle(seed=0, buffer_size=16), batch_size=4)")
def test_stream(folder):
    """An IterableDataset with a shuffle buffer, in a plain DataLoader, which reads it again."""
    data = table().to_iterable_dataset(num_shards=4).shuffle(seed=0, buffer_size=16)
    return trained_on(pairs(torch.utils.data.DataLoader, data))


@exact("datasets", "Data", "DataLoader(interleave_datasets([one, two], [0.7, 0.3], seed=0))")
def test_interleaved(folder):
    """Two streams that are mixed by interleave_datasets, in two workers."""
    one, two = (table().to_iterable_dataset(num_shards=4).shuffle(seed=s) for s in (0, 1))
    data = interleave_datasets([one, two], [0.7, 0.3], seed=0)
    return trained_on(pairs(torch.utils.data.DataLoader, data, num_workers=2))


@told(
    "datasets",
    "Data",
    "DataLoader(stream.shuffle(...)): a plain one reads the stream again",
    match="buffer",
)
def test_stream_with_state(folder):
    """An IterableDataset with a shuffle buffer, in a StatefulDataLoader: the buffer is lost."""
    data = table().to_iterable_dataset(num_shards=4).shuffle(seed=0, buffer_size=16)
    return trained_on(pairs(StatefulDataLoader, data))


@exact(
    "datasets", "Data", "ShardedStream(range(n), lambda i: stream.shard(n, i), shuffle_buffer=16)"
)
def test_sharded(folder):
    """The shards of an IterableDataset, shuffled by a ShardedStream, which keeps its position."""
    from camshaft import ShardedStream

    data = table().to_iterable_dataset(num_shards=4)
    stream = ShardedStream(range(4), lambda i: data.shard(4, i), shuffle_buffer=16)
    return trained_on(pairs(torch.utils.data.DataLoader, stream))
