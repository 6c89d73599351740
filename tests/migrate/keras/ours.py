import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from camshaft import supervised
from camshaft.handlers import (
    Checkpoint,
    ClipGradNorm,
    ConsoleLines,
    EarlyStopping,
    Metrics,
    RestoreBest,
    Validate,
)

torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)
shuffle = torch.Generator().manual_seed(0)
train_loader = DataLoader(Subset(data, range(1408)), 32, shuffle=True, generator=shuffle)
val_loader = DataLoader(Subset(data, range(1408, 1797)), 64)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine = supervised(model, optimizer, nn.CrossEntropyLoss())
engine.add(
    ClipGradNorm(1.0),
    Metrics({"accuracy": MulticlassAccuracy(10, average="micro")}),
    Validate(val_loader),
    EarlyStopping("val/loss", patience=2),
    RestoreBest("val/loss"),
    Checkpoint("runs/ours", resume=True),
    ConsoleLines(),
)
engine.run(train_loader, max_epochs=3)
