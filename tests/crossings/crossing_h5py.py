"""h5py: arrays in one file."""

import os

import h5py
import numpy as np
import torch
from crossing import exact, trained_on


class Rows(torch.utils.data.Dataset):
    """Rows of a file, which each process opens for itself."""

    def __init__(self, path):
        self.path, self.file = path, None

    def __len__(self):
        return 44

    def __getitem__(self, index):
        self.file = self.file or h5py.File(self.path)
        return torch.from_numpy(self.file["features"][index]), int(self.file["label"][index])


@exact("h5py", "Data", "DataLoader(rows, batch_size=4, shuffle=True, num_workers=2)")
def test_rows(folder):
    """Rows of an HDF5 file that each of two workers opens."""
    path, features = f"{folder}/rows.h5", np.random.default_rng(5).normal(size=(44, 8))
    if not os.path.exists(path):  # workers of a killed run hold its lock for a while
        with h5py.File(path, "w") as file:
            file["features"], file["label"] = features.astype("float32"), features[:, :4].argmax(1)
    torch.manual_seed(0)
    return trained_on(torch.utils.data.DataLoader(Rows(path), 4, shuffle=True, num_workers=2))
