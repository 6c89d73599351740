#!/usr/bin/env bash
# A model trains in bfloat16 because its file is. transformers 5.23.0, torch 2.13.0, CPU.
# Guess: from_pretrained gives weights of float32, as in transformers 4, and bf16=True or autocast is what makes it cheaper.
# Seen: the type is that of the file. With AdamW and a usual rate of 1e-5, a step is less than half of the distance of two
# bfloat16 numbers, so most of a weight matrix never moves. `dtype=torch.float32` moves all of it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.23.0
cat > "$folder/tried.py" <<'CODE'
import sys

import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, logging

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.manual_seed(0)
config = GPT2Config(vocab_size=64, n_embd=64, n_layer=1, n_head=2, n_positions=32)
GPT2LMHeadModel(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
words = torch.randint(0, 64, (8, 16))
for options in ({}, {"dtype": torch.float32}):
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], **options).train()
    weight = model.transformer.h[0].mlp.c_fc.weight
    before = weight.detach().clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    for _ in range(50):
        optimizer.zero_grad()
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()
    moved = float((weight != before).float().mean())
    print(
        options,
        weight.dtype,
        "- of a matrix",
        "more" if moved > 0.5 else "less",
        "than half has moved in 50 steps",
    )
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
{} torch.bfloat16 - of a matrix less than half has moved in 50 steps
{'dtype': torch.float32} torch.float32 - of a matrix more than half has moved in 50 steps
SEEN
