"""torchvision: the second version of its transforms."""

import torch
from crossing import Augmented, exact, flat_network, pictures, trained_on
from torchvision.transforms import v2


@exact("torchvision", "Augmentations", "DataLoader(data_that_augments, num_workers=2)")
def test_transforms(folder):
    """Ten transforms of torchvision.transforms.v2, in two workers."""
    choice = v2.RandomChoice([v2.GaussianBlur(3), v2.RandomInvert(), v2.ColorJitter(0.4)])
    one_by_one = [v2.ToImage(), v2.RandomResizedCrop(16), v2.RandomHorizontalFlip(), choice]
    many = [v2.AugMix(), v2.TrivialAugmentWide(), v2.ToDtype(torch.float32, scale=True)]
    augment = v2.Compose([*one_by_one, *many, v2.RandomErasing(), v2.ToPureTensor()])
    torch.manual_seed(0)
    data = Augmented(pictures(), augment)
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True, num_workers=2)
    return trained_on(loader, flat_network)


@exact(
    "torchvision", "Augmentations", "DataLoader(data, collate_fn=lambda rows: mix(*collate(rows)))"
)
def test_mixes(folder):
    """MixUp and CutMix of each batch, in the function that makes batches."""
    mix = v2.RandomChoice([v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)])
    collate = torch.utils.data.default_collate
    torch.manual_seed(0)
    data = Augmented(pictures(), v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]))
    loader = torch.utils.data.DataLoader(
        data, 4, shuffle=True, collate_fn=lambda rows: mix(*collate(rows))
    )
    return trained_on(loader, flat_network)
