"""albumentations: transforms of pictures, with generators of their own."""

import functools

import albumentations
import torch
from crossing import Augmented, exact, flat_network, pictures, told, trained_on


def transform(**options):
    spatial = [albumentations.HorizontalFlip(), albumentations.Rotate(30)]
    colours = [albumentations.RandomBrightnessContrast(), albumentations.ToFloat()]
    return albumentations.Compose([*spatial, *colours, albumentations.ToTensorV2()], **options)


@exact("albumentations", "Augmentations", "Compose([...], seed=0), and no workers")
def test_seed(folder):
    """Transforms with a seed, without workers."""
    seeded = transform(seed=0)
    data = Augmented(pictures(), lambda picture: seeded(image=picture)["image"])
    torch.manual_seed(0)
    return trained_on(torch.utils.data.DataLoader(data, 4, shuffle=True), flat_network)


class Seeded:
    """What a script writes as a class: the transform is an attribute."""

    def __init__(self):
        self.transform = transform(seed=0)

    def __call__(self, picture):
        return self.transform(image=picture)["image"]


@told(
    "albumentations",
    "Augmentations",
    "make = cache(transform); make().set_random_seed(int(torch.randint(2**31, ())))",
    match="random generator of its own",
)
def test_seed_in_workers(folder):
    """Transforms with a seed, in two workers."""
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(
        Augmented(pictures(), Seeded()), 4, shuffle=True, num_workers=2
    )
    return trained_on(loader, flat_network)


@exact(
    "albumentations",
    "Augmentations",
    "make = cache(transform); make().set_random_seed(int(torch.randint(2**31, ())))",
)
def test_seeded_by_sample(folder):
    """Transforms in two workers, made in each process and seeded for each sample."""
    one_a_process = functools.cache(transform)

    def augment(picture):
        one_a_process().set_random_seed(int(torch.randint(2**31, ())))
        return one_a_process()(image=picture)["image"]

    torch.manual_seed(0)
    data = Augmented(pictures(), augment)
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True, num_workers=2)
    return trained_on(loader, flat_network)
