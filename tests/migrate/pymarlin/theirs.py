import pymarlin
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)


class Digits(pymarlin.ModuleInterface):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def get_optimizers_schedulers(self, estimated_global_steps_per_epoch, epochs):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=66)]

    def get_train_dataloader(self, sampler, batch_size):
        train_set = Subset(data, range(1408))
        return DataLoader(train_set, batch_size)

    def get_val_dataloaders(self, sampler, batch_size):
        return DataLoader(Subset(data, range(1408, 1797)), batch_size)

    def train_step(self, global_step, batch, device):
        inputs, targets = batch[0].to(device), batch[1].to(device)
        return nn.functional.cross_entropy(self.layers(inputs), targets)

    def val_step(self, global_step, batch, device):
        inputs, targets = batch[0].to(device), batch[1].to(device)
        return self.layers(inputs).argmax(1) == targets

    def on_end_val_epoch(self, global_step, right, key="default"):
        print(global_step, right.float().mean().item())


model = Digits()
arguments = pymarlin.TrainerArguments(
    epochs=3,
    train_batch_size=64,
    gpu_batch_size_limit=32,
    val_batch_size=64,
    max_grad_norm=1.0,
    writers=["stdout"],
    disable_tqdm=True,
)
pymarlin.Trainer(model, arguments).train()
