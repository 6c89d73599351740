"""batchgenerators: transforms of volumes, as those of nnU-Net."""

import numpy as np
import torch
from crossing import Augmented, exact, flat_network, trained_on


@exact("batchgenerators", "Augmentations", "DataLoader(data_that_augments, num_workers=2)")
def test_transforms(folder):
    """Transforms that draw from NumPy's and Python's generators, in two workers."""
    from batchgenerators.transforms.abstract_transforms import Compose
    from batchgenerators.transforms.noise_transforms import GaussianNoiseTransform
    from batchgenerators.transforms.spatial_transforms import MirrorTransform

    steps = Compose([GaussianNoiseTransform(p_per_sample=0.7), MirrorTransform((0, 1, 2))])
    volumes = np.random.default_rng(5).normal(size=(44, 1, 4, 4, 4)).astype("float32")

    def augment(volume):
        return steps(data=volume[None].copy())["data"][0].astype("float32")

    torch.manual_seed(0)
    data = Augmented([(volume, i % 4) for i, volume in enumerate(volumes)], augment)
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True, num_workers=2)
    return trained_on(loader, flat_network)
