"""audiomentations: transforms of waveforms."""

import audiomentations as am
import numpy as np
import torch
from crossing import Augmented, exact, flat_network, trained_on


@exact("audiomentations", "Augmentations", "DataLoader(data_that_augments, num_workers=2)")
def test_compose(folder):
    """Transforms that draw from Python's and NumPy's generators, in two workers."""
    compose = am.Compose([am.AddGaussianNoise(p=0.7), am.Gain(p=0.7), am.Shift(), am.TimeMask()])
    sounds = np.random.default_rng(5).normal(size=(44, 400)).astype("float32")
    samples = [(sound, i % 4) for i, sound in enumerate(sounds)]
    data = Augmented(samples, lambda sound: compose(sound[None], sample_rate=8000))
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True, num_workers=2)
    return trained_on(loader, flat_network)
