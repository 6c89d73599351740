"""The gradients that each library's optimizer sees: x = 1 ... 5, windows of two, a short last one.

A weight of 1, the target 2x, squared errors, SGD with a rate of 0.001. One batch of each window
would give -5, -24.875 and -48.506.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.arange(1.0, 6.0)[:, None]
data = TensorDataset(x, 2 * x)
loader = DataLoader(data, 1)
model = nn.Linear(1, 1, bias=False)
nn.init.ones_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
seen = []
optimizer.register_step_pre_hook(lambda *_: seen.append(round(model.weight.grad.item(), 3)))


def with_accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    prepared, stepper, batches = accelerator.prepare(model, optimizer, loader)
    for inputs, targets in batches:
        with accelerator.accumulate(prepared):
            accelerator.backward(nn.functional.mse_loss(prepared(inputs), targets))
            stepper.step()
            stepper.zero_grad()


def with_pytorch_accelerated():
    from pytorch_accelerated import Trainer

    settings = {"shuffle": False, "num_workers": 0}
    Trainer(model, nn.MSELoss(), optimizer, callbacks=[]).train(
        data,
        num_epochs=1,
        per_device_batch_size=1,
        gradient_accumulation_steps=2,
        train_dataloader_kwargs=settings,
    )


def with_transformers():
    from transformers import Trainer, TrainingArguments

    class Answer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = model

        def forward(self, inputs, labels):
            return {"loss": nn.functional.mse_loss(self.layer(inputs), labels)}

    arguments = TrainingArguments(
        "runs",
        num_train_epochs=1,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        train_sampling_strategy="sequential",
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    rows = [{"inputs": inputs, "labels": targets} for inputs, targets in data]
    Trainer(Answer(), arguments, train_dataset=rows, optimizers=(optimizer, None)).train()


def with_camshaft():
    from camshaft import supervised

    supervised(model, optimizer, nn.MSELoss(), accumulate=2).run(loader, max_epochs=1)


globals()[f"with_{sys.argv[1]}"]()
print("gradients", *seen)
