import torch
from lightning_fabric import Fabric
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)
shuffle = torch.Generator().manual_seed(0)
train_loader = DataLoader(Subset(data, range(1408)), 32, shuffle=True, generator=shuffle)
val_loader = DataLoader(Subset(data, range(1408, 1797)), 64)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=66)
loss_fn = nn.CrossEntropyLoss()

fabric = Fabric(accelerator="cpu", devices=1)
model, optimizer = fabric.setup(model, optimizer)
train_loader, val_loader = fabric.setup_dataloaders(train_loader, val_loader)
for epoch in range(3):
    model.train()
    for index, (inputs, targets) in enumerate(train_loader):
        is_accumulating = (index + 1) % 2 != 0
        with fabric.no_backward_sync(model, enabled=is_accumulating):
            loss = loss_fn(model(inputs), targets)
            fabric.backward(loss / 2)
        if not is_accumulating:
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    model.eval()
    right = 0
    for inputs, targets in val_loader:
        with torch.no_grad():
            right += (model(inputs).argmax(1) == targets).sum().item()
    fabric.print(epoch + 1, right / 389)
    fabric.save("runs/theirs.ckpt", {"model": model, "optimizer": optimizer, "epoch": epoch})
