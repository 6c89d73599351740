#!/usr/bin/env bash
# The same setting gives batch statistics or none, depending on when it is set. torch 2.13.0, CPU.
# Guess: module.track_running_stats = False for each BatchNorm of a pretrained model, as forums advise for small or shifted
# batches, makes it normalise by the batch, as the argument of the constructor does.
# Seen: the running mean and variance are still there, and evaluations go on using them; training only stops to move them.
# With running_mean and running_var set to None as well, it uses the batch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

x = torch.tensor([[100.0], [102.0]])
made = torch.nn.BatchNorm1d(1, track_running_stats=False, affine=False).eval()
late = torch.nn.BatchNorm1d(1, affine=False).eval()
late.track_running_stats = False
bare = torch.nn.BatchNorm1d(1, affine=False).eval()
bare.track_running_stats, bare.running_mean, bare.running_var = False, None, None
for name, layer in (("made so", made), ("set late", late), ("and without buffers", bare)):
    print(f"{name}:", [round(value, 2) for value in layer(x).flatten().tolist()])
late.train()(x)
print("set late, after a training step:", [round(value, 2) for value in late.eval()(x).flatten().tolist()])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
made so: [-1.0, 1.0]
set late: [100.0, 102.0]
and without buffers: [-1.0, 1.0]
set late, after a training step: [100.0, 102.0]
SEEN
