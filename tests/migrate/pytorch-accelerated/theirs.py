from functools import partial

import torch
from pytorch_accelerated import Trainer
from pytorch_accelerated.callbacks import EarlyStoppingCallback, SaveBestModelCallback
from pytorch_accelerated.trainer import DEFAULT_CALLBACKS, TrainerPlaceholderValues
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import Subset, TensorDataset

torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

trainer = Trainer(
    model,
    nn.CrossEntropyLoss(),
    optimizer,
    callbacks=[
        *DEFAULT_CALLBACKS,
        EarlyStoppingCallback(early_stopping_patience=2),
        SaveBestModelCallback("best_model.pt"),
    ],
)
steps = TrainerPlaceholderValues.NUM_UPDATE_STEPS_PER_EPOCH * 3
trainer.train(
    Subset(data, range(1408)),
    num_epochs=3,
    eval_dataset=Subset(data, range(1408, 1797)),
    per_device_batch_size=32,
    gradient_accumulation_steps=2,
    create_scheduler_fn=partial(CosineAnnealingLR, T_max=steps),
    train_dataloader_kwargs={"generator": torch.Generator().manual_seed(0), "num_workers": 0},
    eval_dataloader_kwargs={"num_workers": 0},
)
