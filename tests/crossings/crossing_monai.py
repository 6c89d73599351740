"""monai: transforms with generators of their own, and data sets that cache."""

import functools

import monai
import torch
from crossing import Augmented, exact, flat_network, told, trained_on
from monai import transforms


def images():
    generator = torch.Generator().manual_seed(5)
    return [(image, i % 4) for i, image in enumerate(torch.rand(44, 1, 8, 8, generator=generator))]


def transform():

    noise = transforms.RandGaussianNoise(prob=1.0)
    affine = transforms.RandAffine(prob=1.0, translate_range=2.0, padding_mode="zeros")
    return transforms.Compose(
        [noise, affine, torch.Tensor.float, transforms.ToTensor(track_meta=False)]
    )


@exact("monai", "Augmentations", "engine.run(monai.data.DataLoader(data, batch_size=4))")
def test_transforms(folder):
    """Random transforms in monai's DataLoader without workers."""
    torch.manual_seed(0)
    data = Augmented(images(), transform())
    return trained_on(monai.data.DataLoader(data, batch_size=4, shuffle=True), flat_network)


@told(
    "monai",
    "Augmentations",
    "make = cache(transform); make().set_random_state(int(torch.randint(2**31, ())))",
    match="random generator of its own",
)
def test_transforms_in_workers(folder):
    """Random transforms in monai's DataLoader with two workers."""
    torch.manual_seed(0)
    data = Augmented(images(), transform())
    loader = monai.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=2)
    return trained_on(loader, flat_network)


@exact(
    "monai",
    "Augmentations",
    "make = cache(transform); make().set_random_state(int(torch.randint(2**31, ())))",
)
def test_seeded_by_sample(folder):
    """Random transforms in two workers, made in each process and seeded for each sample."""
    one_a_process = functools.cache(transform)

    def augment(image):
        one_a_process().set_random_state(int(torch.randint(2**31, ())))
        return one_a_process()(image)

    torch.manual_seed(0)
    data = Augmented(images(), augment)
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True, num_workers=2)
    return trained_on(loader, flat_network)


@exact("monai", "Data", "monai.data.DataLoader(CacheDataset(items, transform), batch_size=4)")
def test_cache(folder):
    """A CacheDataset, whose random transforms draw for each sample."""
    torch.manual_seed(0)
    items = [{"image": image, "label": label} for image, label in images()]

    fixed = transforms.ScaleIntensityd("image")
    drawing = transforms.RandScaleIntensityd("image", 0.5, prob=1.0)
    finish = transforms.Lambda(lambda item: (item["image"].as_tensor(), item["label"]))
    steps = transforms.Compose([fixed, drawing, finish])
    data = monai.data.CacheDataset(items, steps, num_workers=0, progress=False)
    return trained_on(monai.data.DataLoader(data, batch_size=4, shuffle=True), flat_network)
