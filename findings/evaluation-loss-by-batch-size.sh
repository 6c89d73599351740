#!/usr/bin/env bash
# The evaluation loss of a language model depends on the batch size. transformers 5.23.0, torch 2.13.0, CPU.
# Guess: Trainer.evaluate gives the mean over tokens, as its training divides by the tokens of a step, so exp(eval_loss) is
# a perplexity.
# Seen: it takes the mean of each batch, by tokens, and weighs it by its number of texts. One long text among short ones
# counts a token as much as they do in a large batch, and a text as much as they do alone. Only batches of equal lengths
# agree.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.23.0 accelerate==1.15.0
cat > "$folder/tried.py" <<'CODE'
import math
import tempfile

import torch
import transformers

transformers.logging.set_verbosity_error()
torch.manual_seed(0)
config = transformers.GPT2Config(vocab_size=11, n_positions=32, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
model = transformers.GPT2LMHeadModel(config).eval()
texts = [{"input_ids": torch.full((n,), word)} for n, word in ((3, 1), (3, 1), (3, 1), (20, 2))]
with torch.no_grad():
    model.lm_head.weight.zero_()
    model.lm_head.weight[1] = 5 * model.transformer(input_ids=torch.ones(1, 3, dtype=torch.long)).last_hidden_state[0, 0]

def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True, padding_value=0)
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids.masked_fill(ids == 0, -100)}

seen, tokens = 0.0, 0
for text in texts:
    labels = text["input_ids"][None]
    seen += model(input_ids=labels, labels=labels).loss.item() * (labels.numel() - 1)
    tokens += labels.numel() - 1
print(f"mean over tokens: {seen / tokens:.2f}")
for size in (1, 2, 4):
    arguments = transformers.TrainingArguments(tempfile.mkdtemp(), report_to=[], use_cpu=True, disable_tqdm=True, per_device_eval_batch_size=size)
    arguments.log_level = "error"
    trainer = transformers.Trainer(model, arguments, eval_dataset=texts, data_collator=collate)
    trainer.remove_callback(transformers.PrinterCallback)
    print(f"eval_loss in batches of {size}: {trainer.evaluate()['eval_loss']:.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
mean over tokens: 6.29
eval_loss in batches of 1: 1.97
eval_loss in batches of 2: 3.42
eval_loss in batches of 4: 5.42
SEEN
