"""tensorstore: rows of an array in files."""

import numpy as np
import torch
from crossing import exact, trained_on
from torch.utils.data import DataLoader, Dataset


@exact("tensorstore", "Data", "DataLoader(rows_of_a_store, batch_size=4, shuffle=True)")
def test_rows(folder):
    """Rows of an array of chunks, by index."""
    import tensorstore

    features = np.random.default_rng(5).normal(size=(44, 8)).astype("float32")
    store = tensorstore.open(
        {"driver": "zarr3", "kvstore": f"file://{folder}/rows/"},
        **{"dtype": tensorstore.float32, "shape": [44, 8], "open": True, "create": True},
        chunk_layout=tensorstore.ChunkLayout(chunk_shape=[4, 8]),
    ).result()
    store[:] = features

    class Rows(Dataset):
        def __len__(self):
            return 44

        def __getitem__(self, index):
            row = torch.from_numpy(store[index].read().result())
            return row, int(row[:4].argmax())

    return trained_on(DataLoader(Rows(), 4, shuffle=True))
