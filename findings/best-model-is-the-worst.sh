#!/usr/bin/env bash
# load_best_model_at_end loads the worst model. transformers 5.23.0, torch 2.13.0, CPU.
# Guess: a metric_for_best_model of "mae", "wer" or "perplexity" is known to be better when smaller, or the trainer asks.
# Seen: without greater_is_better, all but names that end in "loss" are better when greater. Of a run that improves at each
# evaluation, the first model is loaded.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.23.0 accelerate==1.15.0
cat > "$folder/tried.py" <<'CODE'
import tempfile

import torch
import transformers

transformers.logging.set_verbosity_error()

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, labels=None):
        return {"loss": (self.weight - labels).square().mean(), "logits": self.weight.expand(len(x), 1)}

rows = [{"x": 0.0, "labels": 8.0}] * 4
for options in ({}, {"greater_is_better": False}):
    arguments = transformers.TrainingArguments(
        tempfile.mkdtemp(), report_to=[], use_cpu=True, disable_tqdm=True, num_train_epochs=4, learning_rate=1.0, weight_decay=0.0,
        lr_scheduler_type="constant", eval_strategy="epoch", save_strategy="epoch", logging_strategy="no",
        metric_for_best_model="mae", load_best_model_at_end=True, save_total_limit=1, **options,
    )
    trainer = transformers.Trainer(
        Model(), arguments, train_dataset=rows, eval_dataset=rows,
        compute_metrics=lambda seen: {"mae": abs(seen.predictions - 8.0).mean()},
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    errors = [round(float(row["eval_mae"])) for row in trainer.state.log_history if "eval_mae" in row]
    print(f"{options}: errors {errors}, loaded the model with {8 - trainer.model.weight.item():.0f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
{}: errors [7, 6, 5, 4], loaded the model with 7
{'greater_is_better': False}: errors [7, 6, 5, 4], loaded the model with 4
SEEN
