"""webdataset: tar files that are read one after the other."""

import torch
import webdataset
from crossing import digits, exact, told, trained_on
from webdataset import WebDataset


def tars(folder):

    urls = [f"{folder}/{shard}.tar" for shard in range(4)]
    samples = [(features, label.item()) for features, label in digits()]
    for shard, url in enumerate(urls):
        with webdataset.TarWriter(url) as tar:
            for i in range(shard, 44, 4):
                tar.write({"__key__": f"{i}", "x.pth": samples[i][0], "cls": samples[i][1]})
    return urls


def loader(data, **options):
    return torch.utils.data.DataLoader(data.decode().to_tuple("x.pth", "cls"), 4, **options)


@exact(
    "webdataset",
    "Data",
    "DataLoader(WebDataset(urls, shardshuffle=100, seed=0), batch_size=4)",
    note="The library gives each epoch the same order.",
)
def test_shardshuffle(folder):
    """Shards that are shuffled by shardshuffle=, in a plain DataLoader, which reads them again."""
    return trained_on(loader(WebDataset(tars(folder), shardshuffle=100, seed=0)))


@told(
    "webdataset",
    "Data",
    "ShardedStream(urls, read, shuffle_buffer=16)",
    match="gives something else",
)
def test_shuffle(folder):
    """Samples that are shuffled by .shuffle(n), whose seed is the time."""
    return trained_on(loader(WebDataset(tars(folder), shardshuffle=False).shuffle(16)))


@told(
    "webdataset",
    "Data",
    "ShardedStream(urls, read, shuffle_buffer=16)",
    match="gives something else",
)
def test_detshuffle(folder):
    """Shards that are shuffled by detshuffle=True, which counts its passes."""
    data = WebDataset(tars(folder), shardshuffle=100, detshuffle=True, seed=0)
    return trained_on(loader(data))


@exact(
    "webdataset", "Data", "DataLoader(ShardedStream(urls, read, shuffle_buffer=16), num_workers=2)"
)
def test_sharded(folder):
    """Tar files as the shards of a ShardedStream, which shuffles and keeps its position."""
    from camshaft import ShardedStream

    def read(url):
        return WebDataset(url, shardshuffle=False).decode().to_tuple("x.pth", "cls")

    stream = ShardedStream(tars(folder), read, shuffle_buffer=16)
    return trained_on(torch.utils.data.DataLoader(stream, 4))
