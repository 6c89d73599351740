#!/usr/bin/env bash
# Loading an optimizer rounds float32 moments of bfloat16 weights. torch 2.13.0.
# Guess: `load_state_dict` puts back what `state_dict` gave.
# Seen: whatever floats a state holds (but `step`) becomes the dtype of its parameter. An optimizer that keeps
# float32 moments beside bfloat16 weights goes on with rounded ones after a resume, without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch

weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
optimizer = torch.optim.Adam([weight])
moments = torch.full((2,), 0.1234567)
optimizer.state[weight] = {"step": torch.tensor(1.0), "exp_avg": moments, "exp_avg_sq": moments.clone()}
saved = optimizer.state_dict()
print("saved", saved["state"][0]["exp_avg"].dtype, f"{saved['state'][0]['exp_avg'][0]:.7f}")
optimizer.load_state_dict(saved)
loaded = optimizer.state[weight]["exp_avg"]
print("loaded", loaded.dtype, f"{loaded[0]:.7f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
saved torch.float32 0.1234567
loaded torch.bfloat16 0.1235352
SEEN
