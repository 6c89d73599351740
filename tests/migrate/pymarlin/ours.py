import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from camshaft import supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, ConsoleLines, LRSchedule, Metrics, Validate

torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)
train_loader = DataLoader(Subset(data, range(1408)), 32)
val_loader = DataLoader(Subset(data, range(1408, 1797)), 64)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=66)
loss_fn = nn.CrossEntropyLoss()

engine = supervised(model, optimizer, loss_fn, accumulate=2)
engine.add(
    ClipGradNorm(1.0),
    LRSchedule(scheduler),
    Metrics({"accuracy": MulticlassAccuracy(10, average="micro")}),
    Validate(val_loader),
    Checkpoint("runs/ours", resume=True),
    ConsoleLines(),
)
engine.run(train_loader, max_epochs=3)
