#!/usr/bin/env bash
# The gradient of a short last accumulation window is too small. accelerate 1.15.0, lightning 2.6.6.
# Guess: four batches in windows of three: the last window is one batch, and its gradient the mean of that one.
# Seen: both step at the end of the data, and still divide by three: the last step of each epoch is a third.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 accelerate==1.15.0 lightning==2.6.6
cat > "$folder/tried.py" <<'CODE'
import logging
import os
os.environ["TQDM_DISABLE"] = "1"
import torch
from accelerate import Accelerator
for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)
import lightning

data = torch.utils.data.DataLoader(torch.zeros(4, 1))
accelerator, seen = Accelerator(cpu=True, gradient_accumulation_steps=3), []
layer = torch.nn.Linear(1, 1)
model, optimizer, loader = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.0), data)
for _ in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model.weight.sum())
        if accelerator.sync_gradients:
            seen.append(round(model.weight.grad.item(), 3))
        optimizer.step()
        optimizer.zero_grad()
print("accelerate", seen)

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), []
    def training_step(self, batch, index):
        return self.layer.weight.sum()
    def on_before_optimizer_step(self, optimizer):
        self.seen.append(round(self.layer.weight.grad.item(), 3))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)

module = Module()
options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
lightning.Trainer(
    accelerator="cpu", max_epochs=1, accumulate_grad_batches=3, enable_checkpointing=False, **options
).fit(module, data)
print("lightning", module.seen)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
accelerate [1.0, 0.333]
lightning [1.0, 0.333]
SEEN
