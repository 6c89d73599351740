"""lmdb: a table of keys and values in one file."""

import lmdb
import numpy as np
import torch
from crossing import exact, trained_on


class Rows(torch.utils.data.Dataset):
    """Values of a table, which each process opens for itself."""

    def __init__(self, path):
        self.path, self.table = path, None

    def __len__(self):
        return 44

    def __getitem__(self, index):
        self.table = self.table or lmdb.open(self.path, readonly=True, lock=False)
        with self.table.begin() as transaction:
            row = np.frombuffer(transaction.get(b"%d" % index), "float32")
        return torch.tensor(row), int(row[:4].argmax())


@exact("lmdb", "Data", "DataLoader(rows, batch_size=4, shuffle=True, num_workers=2)")
def test_rows(folder):
    """Values of a table that each of two workers opens."""
    with lmdb.open(f"{folder}/rows") as table, table.begin(write=True) as transaction:
        for i, row in enumerate(np.random.default_rng(5).normal(size=(44, 8)).astype("float32")):
            transaction.put(b"%d" % i, row.tobytes())
    torch.manual_seed(0)
    data = Rows(f"{folder}/rows")
    return trained_on(torch.utils.data.DataLoader(data, 4, shuffle=True, num_workers=2))
