"""numba: compiled functions that augment, whose random numbers are numba's own."""

import numpy as np
import torch
from crossing import digits, exact, told, trained_on
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    def __init__(self, augment):
        self.rows, self.augment = digits(), augment

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        features, label = self.rows[index]
        return self.augment(features.numpy()), label


@told(
    "numba",
    "Augmentations",
    "Draw the noise by NumPy or torch, and give it to the compiled function",
    match="the same indices and other values",
    note="In the step, nothing says so",
)
def test_noise_inside(folder):
    """A compiled function that draws its noise itself."""
    import numba

    @numba.njit
    def augment(row):
        return row + np.random.normal(0, 0.1, row.size).astype(np.float32)

    return trained_on(DataLoader(Augmented(augment), 4, shuffle=True))


@exact("numba", "Augmentations", "compiled(row, torch.randn(row.shape).numpy())")
def test_noise_given(folder):
    """A compiled function that gets its noise, drawn by torch, in two workers."""
    import numba

    @numba.njit
    def compiled(row, noise):
        return row + 0.1 * noise

    def augment(row):
        return compiled(row, torch.randn(row.shape).numpy()).astype(np.float32)

    return trained_on(DataLoader(Augmented(augment), 4, shuffle=True, num_workers=2))
