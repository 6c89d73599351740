"""timm: models with dropped paths."""

import torch
from crossing import Trial, adam, exact

from camshaft import supervised
from camshaft.handlers import EMA


@exact("timm", "Models", 'supervised(timm.create_model("test_vit", ...), optimizer, loss)')
def test_vision_transformer(folder):
    """A small vision transformer with dropped paths and patches, and timm's own loss."""
    import timm
    from timm.loss import LabelSmoothingCrossEntropy

    torch.manual_seed(0)
    model = timm.create_model(
        "test_vit", num_classes=4, img_size=32, drop_path_rate=0.2, patch_drop_rate=0.2
    )
    data = torch.utils.data.TensorDataset(torch.rand(44, 3, 32, 32), torch.arange(44) % 4)
    engine = supervised(model, adam(model), LabelSmoothingCrossEntropy()).add(EMA(0.9))
    return Trial(engine, torch.utils.data.DataLoader(data, 4, shuffle=True))
