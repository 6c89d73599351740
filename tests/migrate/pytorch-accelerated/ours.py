import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Subset, TensorDataset

from camshaft import supervised
from camshaft.handlers import (
    Checkpoint,
    ConsoleLines,
    EarlyStopping,
    LRSchedule,
    NonFiniteGuard,
    RestoreBest,
    Validate,
    best,
    latest,
)

torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)
shuffle = torch.Generator().manual_seed(0)
train_loader = DataLoader(Subset(data, range(1408)), 32, shuffle=True, generator=shuffle)
val_loader = DataLoader(Subset(data, range(1408, 1797)), 32)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

engine = supervised(model, optimizer, nn.CrossEntropyLoss(), accumulate=2)
engine.add(
    LRSchedule(lambda optimizer, horizon: CosineAnnealingLR(optimizer, T_max=horizon.steps)),
    NonFiniteGuard("stop"),
    Validate(val_loader),
    EarlyStopping("val/loss", patience=2, min_delta=0.01),
    RestoreBest("val/loss"),
    Checkpoint("runs/ours", keep=latest(1) | best(1, "val/loss"), resume=True),
    ConsoleLines(),
)
engine.run(train_loader, max_epochs=3)
