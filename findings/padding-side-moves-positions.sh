#!/usr/bin/env bash
# What GPT-2 makes of a text depends on how long the others of its batch are. transformers 5.23.0, torch 2.13.0, CPU.
# Guess: with attention_mask, padding changes nothing of the words, on the left as on the right.
# Seen: a forward pass numbers positions from the first column, padding included; only generate() counts words. With a
# tokenizer that pads on the left, a text stands at other positions in each batch, unless position_ids= is given.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.23.0
cat > "$folder/tried.py" <<'CODE'
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=2, n_positions=32)
).eval()
text = torch.randint(1, 50, (1, 8))
mask = torch.ones_like(text)
alone = model(input_ids=text).logits
for side, place in (("right", (0, 4)), ("left", (4, 0))):
    padded, shown = (torch.nn.functional.pad(each, place) for each in (text, mask))
    batch = {"input_ids": padded, "attention_mask": shown}
    counted = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    for name, options in (("as it is", {}), ("position_ids", {"position_ids": counted})):
        found = model(**batch, **options).logits[:, place[0] : place[0] + 8]
        print(
            "padded on the",
            side,
            name,
            "- as the text alone:",
            torch.allclose(found, alone, atol=1e-5),
        )
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
padded on the right as it is - as the text alone: True
padded on the right position_ids - as the text alone: True
padded on the left as it is - as the text alone: False
padded on the left position_ids - as the text alone: True
SEEN
