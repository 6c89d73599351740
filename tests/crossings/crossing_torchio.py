"""torchio: transforms of volumes, and a queue of patches."""

import torch
import torchio
from crossing import exact, flat_network, trained_on


def subjects(transform=None):

    generator = torch.Generator().manual_seed(5)
    volumes = torch.rand(44, 1, 8, 8, 8, generator=generator)
    made = [
        torchio.Subject(scan=torchio.ScalarImage(tensor=v), label=i % 4)
        for i, v in enumerate(volumes)
    ]
    return torchio.SubjectsDataset(made, transform=transform)


def pairs(samples):
    scans = torch.stack([sample["scan"]["data"] for sample in samples])
    return scans.float(), torch.tensor([sample["label"] for sample in samples])


@exact(
    "torchio", "Augmentations", "DataLoader(SubjectsDataset(subjects, transform), num_workers=2)"
)
def test_transforms(folder):
    """Random transforms of a SubjectsDataset, in two workers."""
    transform = torchio.Compose(
        [torchio.RandomFlip(), torchio.RandomNoise(), torchio.RandomGamma()]
    )
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(
        subjects(transform), 4, shuffle=True, num_workers=2, collate_fn=pairs
    )
    return trained_on(loader, flat_network)


class Patches(torch.utils.data.IterableDataset):
    """The patches of a new queue for each pass."""

    def __iter__(self):
        sampler = torchio.data.UniformSampler(patch_size=4)
        queue = torchio.Queue(subjects(), max_length=8, samples_per_volume=1, sampler=sampler)
        return (queue[i] for i in range(len(queue)))


@exact(
    "torchio",
    "Data",
    "DataLoader(patches, num_workers=1): an IterableDataset, whose __iter__ makes a Queue",
    note="A Queue itself takes no notice of indices, so that a resume cannot skip to its place.",
)
def test_queue(folder):
    """Random patches of a few subjects at a time, from a new Queue in each pass, in a worker."""
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(Patches(), 4, num_workers=1, collate_fn=pairs)
    return trained_on(loader, flat_network)
