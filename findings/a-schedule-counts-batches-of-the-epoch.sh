#!/usr/bin/env bash
# A schedule that is to step every so many steps may never step. lightning 2.6.6, torch 2.13.0, CPU.
# Guess: {"interval": "step", "frequency": 6} steps the schedule once in six steps of the optimizer.
# Seen: what counts is the number of the batch in its epoch, which has to be a multiple of 6. A frequency above the length of an
# epoch never comes; and with accumulate_grad_batches=3, steps are at batches 3 and 5 of 5, where a frequency of 2 never comes
# either. The rate stays at its start, without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet lightning==2.6.6
cat > "$folder/tried.py" <<'CODE'
import logging
import lightning
import torch

logging.disable(logging.WARNING)

class Model(lightning.LightningModule):
    def __init__(self, frequency):
        super().__init__()
        self.layer, self.frequency = torch.nn.Linear(4, 1), frequency

    def training_step(self, batch, number):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        entry = {"scheduler": schedule, "interval": "step", "frequency": self.frequency}
        return {"optimizer": optimizer, "lr_scheduler": entry}

loader = torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=8)
for accumulate, frequency in ((1, 1), (1, 2), (1, 6), (2, 2), (3, 1), (3, 2)):
    model = Model(frequency)
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = lightning.Trainer(max_epochs=12, accumulate_grad_batches=accumulate, accelerator="cpu", **quiet)
    trainer.fit(model, loader)
    schedule = trainer.lr_scheduler_configs[0].scheduler
    print(f"12 epochs of 5 batches, accumulate {accumulate}, frequency {frequency}: {trainer.global_step} steps", end=", ")
    print(f"of the schedule {trainer.global_step // frequency} by the guess, {schedule.last_epoch} seen")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
12 epochs of 5 batches, accumulate 1, frequency 1: 60 steps, of the schedule 60 by the guess, 60 seen
12 epochs of 5 batches, accumulate 1, frequency 2: 60 steps, of the schedule 30 by the guess, 24 seen
12 epochs of 5 batches, accumulate 1, frequency 6: 60 steps, of the schedule 10 by the guess, 0 seen
12 epochs of 5 batches, accumulate 2, frequency 2: 36 steps, of the schedule 18 by the guess, 24 seen
12 epochs of 5 batches, accumulate 3, frequency 1: 24 steps, of the schedule 24 by the guess, 24 seen
12 epochs of 5 batches, accumulate 3, frequency 2: 24 steps, of the schedule 12 by the guess, 0 seen
SEEN
