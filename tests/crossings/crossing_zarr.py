"""zarr: arrays in chunks, one file each."""

import numpy as np
import torch
import zarr
from crossing import exact, trained_on


def stored(folder):

    values = np.random.default_rng(5).normal(size=(44, 8)).astype("float32")
    return zarr.create_array(f"{folder}/rows.zarr", data=values, chunks=(11, 8), overwrite=True)


def with_label(row):
    return torch.as_tensor(row), int(row[:4].argmax())


class Rows(torch.utils.data.Dataset):
    def __init__(self, array):
        self.array = array

    def __len__(self):
        return self.array.shape[0]

    def __getitem__(self, index):
        return with_label(self.array[index])


@exact("zarr", "Data", "DataLoader(rows_of_an_array, batch_size=4, shuffle=True)")
def test_rows(folder):
    """Rows of an array by index."""
    torch.manual_seed(0)
    return trained_on(torch.utils.data.DataLoader(Rows(stored(folder)), 4, shuffle=True))


@exact("zarr", "Data", "ShardedStream(range(chunks), read, shuffle_buffer=16)")
def test_chunks(folder):
    """Chunks of an array as the shards of a ShardedStream, which shuffles."""
    from camshaft import ShardedStream

    array = stored(folder)

    def read(chunk, start=0):
        return map(with_label, array[11 * chunk + start : 11 * (chunk + 1)])

    stream = ShardedStream(range(4), read, shuffle_buffer=16)
    return trained_on(torch.utils.data.DataLoader(stream, 4))
