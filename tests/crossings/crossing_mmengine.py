"""mmengine: its samplers."""

from crossing import digits, exact, trained_on
from torch.utils.data import DataLoader


@exact(
    "mmengine",
    "Data",
    "engine.run(DataLoader(data, 4, sampler=InfiniteSampler(data, seed=3)), epoch_length=11)",
)
def test_infinite_sampler(folder):
    """InfiniteSampler, whose iterators share one generator, in epochs of eleven batches."""
    from mmengine.dataset import InfiniteSampler

    sampler = InfiniteSampler(digits(), seed=3)
    return trained_on(DataLoader(digits(), 4, sampler=sampler), epoch_length=11)


@exact("mmengine", "Data", "DataLoader(data, 4, sampler=DefaultSampler(data, seed=3))")
def test_default_sampler(folder):
    """DefaultSampler, which shuffles by the epoch, in two workers."""
    from mmengine.dataset import DefaultSampler

    return trained_on(
        DataLoader(digits(), 4, sampler=DefaultSampler(digits(), seed=3), num_workers=2)
    )
