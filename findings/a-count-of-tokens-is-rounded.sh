#!/usr/bin/env bash
# A whole number that is logged is another one. lightning 2.6.6, torch 2.13.0, CPU.
# Guess: self.log("tokens", 123456789) logs 123456789; the type of a tensor is kept.
# Seen: a number and a tensor of whole numbers become float32: 123456792 is in the metrics and in the file, and a number of
# samples that grows by one stands still or jumps by two from 16,777,216 on. A float64 tensor keeps its type.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet lightning==2.6.6
cat > "$folder/tried.py" <<'CODE'
import csv
import logging
import pathlib
import sys

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, number):
        self.log("number", 123_456_789)
        self.log("tensor", torch.tensor(123_456_789))
        self.log("double", torch.tensor(123_456_789, dtype=torch.float64))
        self.log("samples", 16_777_216 + number)
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
logger = CSVLogger(sys.argv[1], name="", version="")
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=logger, log_every_n_steps=1, **quiet)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(4, 1)))
metrics = trainer.callback_metrics
print("metrics:", {name: int(metrics[name].item()) for name in ("number", "tensor", "double")})
rows = list(csv.DictReader(pathlib.Path(sys.argv[1], "metrics.csv").open()))
print("file:", {name: rows[0][name] for name in ("number", "tensor", "double")})
print("samples:", [int(float(row["samples"])) for row in rows])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
metrics: {'number': 123456792, 'tensor': 123456792, 'double': 123456789}
file: {'number': '123456792.0', 'tensor': '123456792.0', 'double': '123456789.0'}
samples: [16777216, 16777216, 16777218, 16777220]
SEEN
