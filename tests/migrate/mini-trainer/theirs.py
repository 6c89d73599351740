import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from trainloop import BaseTrainer, CheckpointingHook, ProgressHook

torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = Subset(TensorDataset(images.float() / 16, labels), range(1408))


class DigitsTrainer(BaseTrainer):
    def build_data_loader(self):
        shuffle = torch.Generator().manual_seed(0)
        loader = DataLoader(data, 32, shuffle=True, generator=shuffle)

        def forever():
            while True:
                yield from loader

        return forever()

    def build_model(self):
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def build_optimizer(self):
        return torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def build_lr_scheduler(self):
        return torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, self.max_steps)

    def build_hooks(self):
        return [ProgressHook(interval=22), CheckpointingHook(interval=22, keep_previous=1)]

    def forward(self, batch):
        inputs, targets = batch
        output = self.model(inputs)
        loss = nn.functional.cross_entropy(output, targets)
        return loss, {"accuracy": (output.argmax(1) == targets).float().mean().item()}


trainer = DigitsTrainer(
    66, grad_clip=1.0, gradient_accumulation_steps=2, workspace="runs/theirs", device="cpu"
)
trainer.train()
model = trainer.model
