"""timm: what its training script does to batches and samples."""

import torch
from crossing import Augmented, exact, flat_network, pictures, trained_on
from PIL import Image
from timm.data import Mixup, create_transform
from timm.data.random_erasing import RandomErasing


@exact("timm", "Augmentations", "DataLoader(data, collate_fn=lambda rows: mixup(*collate(rows)))")
def test_mixup(folder):
    """Mixup and CutMix by timm.data.Mixup, and RandomErasing of each batch."""
    mixup = Mixup(cutmix_alpha=1.0, label_smoothing=0.1, num_classes=4)
    erase = RandomErasing(0.5, mode="pixel", device="cpu")

    def collate(rows):
        images, labels = torch.utils.data.default_collate(rows)
        return erase(images), labels

    torch.manual_seed(0)
    data = Augmented(pictures(), lambda each: torch.from_numpy(each).permute(2, 0, 1) / 255)

    def mixed(rows):
        return mixup(*collate(rows))

    loader = torch.utils.data.DataLoader(data, 4, shuffle=True, collate_fn=mixed)
    return trained_on(loader, flat_network)


@exact("timm", "Augmentations", "create_transform(size, is_training=True, auto_augment=...)")
def test_create_transform(folder):
    """The transforms of create_transform with RandAugment, in two workers."""
    policy = create_transform(16, is_training=True, auto_augment="rand-m9-mstd0.5", re_prob=0.3)
    torch.manual_seed(0)
    data = Augmented(pictures(), lambda each: policy(Image.fromarray(each)))
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True, num_workers=2)
    return trained_on(loader, flat_network)
