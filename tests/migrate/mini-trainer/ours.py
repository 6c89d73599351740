import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Events, supervised
from camshaft.handlers import (
    Checkpoint,
    ClipGradNorm,
    ConsoleLines,
    LRSchedule,
    Metrics,
    NonFiniteGuard,
    latest,
)

torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = Subset(TensorDataset(images.float() / 16, labels), range(1408))
shuffle = torch.Generator().manual_seed(0)
loader = DataLoader(data, 32, shuffle=True, generator=shuffle)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 66)
every_22 = Events.STEP_COMPLETED(every=22, last=True)

engine = supervised(model, optimizer, nn.functional.cross_entropy, accumulate=2)
engine.add(
    NonFiniteGuard("retry"),
    ClipGradNorm(1.0),
    LRSchedule(scheduler),
    Metrics({"accuracy": MulticlassAccuracy(10, average="micro")}),
    Checkpoint("runs/ours", when=every_22, keep=latest(2), resume=True),
    ConsoleLines(when=every_22),
)
engine.run(loader, max_steps=66)
