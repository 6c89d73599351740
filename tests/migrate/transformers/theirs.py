import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


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


def accuracy(predictions):
    logits, labels = predictions
    return {"accuracy": (logits.argmax(-1) == labels).mean()}


torch.manual_seed(0)
model = Classifier()
arguments = TrainingArguments(
    "runs/theirs",
    num_train_epochs=3,
    per_device_train_batch_size=32,
    gradient_accumulation_steps=2,
    optim="adamw_torch",
    learning_rate=1e-2,
    lr_scheduler_type="linear",
    warmup_steps=10,
    max_grad_norm=1.0,
    train_sampling_strategy="sequential",
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=2,
    report_to="none",
    use_cpu=True,
)
trainer = Trainer(
    model,
    arguments,
    train_dataset=Digits(0, 1408),
    eval_dataset=Digits(1408, 1797),
    compute_metrics=accuracy,
)
trainer.train()
