import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy
from transformers import get_linear_schedule_with_warmup

from camshaft import supervised
from camshaft.handlers import (
    Checkpoint,
    ClipGradNorm,
    ConsoleLines,
    LRSchedule,
    Metrics,
    Validate,
    latest,
)


class Digits(Dataset):
    def __init__(self, first, last):
        images, labels = load_digits(return_X_y=True)
        self.images = torch.tensor(images[first:last] / 16, dtype=torch.float32)
        self.labels = torch.tensor(labels[first:last])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"images": self.images[index], "labels": self.labels[index]}


class Classifier(nn.Module):  # stands for AutoModelForImageClassification.from_pretrained(...)
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, images, labels=None):
        logits = self.layers(images)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def linear(optimizer, horizon):
    return get_linear_schedule_with_warmup(optimizer, 10, horizon.steps)


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
engine = supervised(model, optimizer, accumulate=2)
engine.add(
    ClipGradNorm(1.0),
    LRSchedule(linear),
    Metrics({"accuracy": MulticlassAccuracy(10, average="micro")}),
    Validate(DataLoader(Digits(1408, 1797), 8)),
    Checkpoint("runs/ours", keep=latest(2), resume=True),
    ConsoleLines(),
)
engine.run(DataLoader(Digits(0, 1408), 32), max_epochs=3)
