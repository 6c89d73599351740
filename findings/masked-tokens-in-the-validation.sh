#!/usr/bin/env bash
# A validation loss is another one each time. x-transformers 2.31.10, torch 2.13.0, CPU.
# Guess: mask_prob= of AutoregressiveWrapper hides tokens of the past in training, as dropout does, and none in evaluations.
# Seen: it does not look at the mode. In eval() the same batch has another loss each time, so that the best checkpoint and
# early stopping follow the draw. With mask_prob set to 0 around the evaluation it is one number.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet x-transformers==2.31.10
cat > "$folder/tried.py" <<'CODE'
import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

torch.manual_seed(0)
layers = Decoder(dim=16, depth=1, heads=2)
model = AutoregressiveWrapper(TransformerWrapper(num_tokens=20, max_seq_len=32, attn_layers=layers), mask_prob=0.3)
model.eval()
batch = torch.randint(0, 20, (4, 16))
for probability in (0.3, 0.0):
    model.mask_prob = probability
    with torch.no_grad():
        losses = {round(model(batch).item(), 5) for _ in range(5)}
    print(f"mask_prob={probability}: {len(losses)} different losses of one batch in five evaluations")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
mask_prob=0.3: 5 different losses of one batch in five evaluations
mask_prob=0.0: 1 different losses of one batch in five evaluations
SEEN
