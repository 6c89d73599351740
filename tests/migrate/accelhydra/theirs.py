from dataclasses import dataclass

import torch
from accel_hydra import MetricMonitor, Trainer
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset


@dataclass(kw_only=True)
class DigitsTrainer(Trainer):
    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        return self.loss_fn(self.model(inputs), targets)

    def on_validation_start(self):
        self.right, self.seen = 0, 0

    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        predicted = self.model(inputs).argmax(1)
        predicted, targets = self.accelerator.gather_for_metrics((predicted, targets))
        self.right += (predicted == targets).sum().item()
        self.seen += len(targets)

    def get_val_metrics(self):
        return {"accuracy": self.right / self.seen}


torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)
shuffle = torch.Generator().manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
trainer = DigitsTrainer(
    project_dir="runs/theirs",
    train_dataloader=DataLoader(Subset(data, range(1408)), 32, shuffle=True, generator=shuffle),
    val_dataloader=DataLoader(Subset(data, range(1408, 1797)), 64),
    model=model,
    optimizer=optimizer,
    lr_scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=66),
    loss_fn=nn.CrossEntropyLoss(),
    epochs=3,
    gradient_accumulation_steps=2,
    max_grad_norm=1.0,
    save_last_k=2,
    metric_monitor=MetricMonitor(metric_name="accuracy", mode="max"),
    early_stop=2,
)
trainer.train(seed=0)
