#!/usr/bin/env bash
# A precision of the weights rounds the targets. lightning 2.6.6, torch 2.13.0, CPU.
# Guess: precision="bf16-true" is model.to(torch.bfloat16): what the data set gives, such as targets and times, stays as it
# is.
# Seen: each tensor of floating-point numbers in a batch is cast, float64 too. A target of 1001 is 1000, a time in seconds
# is off by 18 days, also in a loss that is computed in float32. bf16-mixed leaves them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 lightning==2.6.6
cat > "$folder/tried.py" <<'CODE'
import logging

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
rows = TensorDataset(torch.ones(1, 1), torch.tensor([1001.0]), torch.tensor([1760000100.0], dtype=torch.float64))

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, number):
        x, target, time = batch
        print(f"{self.trainer.precision}: target {target.item():.0f}, time {time.item():.0f}")
        return (self.layer(x).float() - target.float()).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)

for precision in ("32-true", "bf16-mixed", "bf16-true"):
    lightning.Trainer(accelerator="cpu", max_epochs=1, precision=precision, **quiet).fit(Model(), DataLoader(rows))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
32-true: target 1001, time 1760000100
bf16-mixed: target 1001, time 1760000100
bf16-true: target 1000, time 1761607680
SEEN
