"""kornia: augmentations of batches, as modules."""

import torch
from crossing import Augmented, exact, flat_network, pictures, trained_on
from kornia import augmentation
from torch import nn


@exact("kornia", "Augmentations", "model = nn.Sequential(AugmentationSequential(...), network)")
def test_in_model(folder):
    """Augmentations of each batch, in the model."""

    def augmented():
        augment = augmentation.AugmentationSequential(
            augmentation.RandomHorizontalFlip(0.5),
            augmentation.RandomAffine(30.0),
            augmentation.RandomErasing(p=0.5),
            augmentation.ColorJiggle(0.2, 0.2, 0.2, 0.2),
        )
        return nn.Sequential(augment, flat_network())

    return trained_on(torch.utils.data.DataLoader(floats(), 4, shuffle=True), augmented)


@exact("kornia", "Augmentations", "DataLoader(data_that_augments, num_workers=2)")
def test_in_workers(folder):
    """Augmentations of each sample, in two workers."""
    augment = nn.Sequential(
        augmentation.RandomAffine(30.0, keepdim=True), augmentation.RandomErasing(keepdim=True)
    )
    data = Augmented(floats(), augment)
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True, num_workers=2)
    return trained_on(loader, flat_network)


def floats():

    return [(torch.from_numpy(each).permute(2, 0, 1) / 255, label) for each, label in pictures()]
