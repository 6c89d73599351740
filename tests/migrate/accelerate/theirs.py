import torch
from accelerate import Accelerator
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

accelerator = Accelerator(gradient_accumulation_steps=2)
model, optimizer, train_loader, val_loader, scheduler = accelerator.prepare(
    model, optimizer, train_loader, val_loader, scheduler
)
for epoch in range(3):
    model.train()
    for inputs, targets in train_loader:
        with accelerator.accumulate(model):
            loss = loss_fn(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    model.eval()
    right = 0
    for inputs, targets in val_loader:
        with torch.no_grad():
            predicted = model(inputs).argmax(1)
        answers, truth = accelerator.gather_for_metrics((predicted, targets))
        right += (answers == truth).sum().item()
    accelerator.print(epoch + 1, right / 389)
    accelerator.save_state("runs/theirs")
