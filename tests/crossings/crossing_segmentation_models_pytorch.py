"""segmentation_models_pytorch: networks, losses and metrics for masks."""

import torch
from crossing import Trial, adam, exact

from camshaft import supervised
from camshaft.handlers import EMA, Metrics, Validate


@exact("segmentation_models_pytorch", "Models", "supervised(Unet(...), optimizer, DiceLoss(...))")
def test_unet(folder):
    """A Unet with DiceLoss, and an intersection over union with the library's functions."""
    import segmentation_models_pytorch as smp

    torch.manual_seed(0)
    model = smp.Unet("timm-mobilenetv3_small_minimal_100", encoder_weights=None, encoder_depth=3,
                     decoder_channels=(16, 8, 8))  # fmt: skip

    def overlap(prediction, target):
        counts = smp.metrics.get_stats(prediction, target.long(), mode="binary", threshold=0.5)
        return smp.metrics.iou_score(*counts, reduction="micro")

    data = torch.utils.data.TensorDataset(
        torch.rand(44, 3, 32, 32), (torch.rand(44, 1, 32, 32) < 0.5).float()
    )
    engine = supervised(model, adam(model), smp.losses.DiceLoss("binary"))
    engine.add(Metrics({"iou": overlap}), EMA(0.9))
    engine.add(Validate(torch.utils.data.DataLoader(data, 8)))
    return Trial(engine, torch.utils.data.DataLoader(data, 4, shuffle=True))
