#!/usr/bin/env bash
# A conjugate comes back as the number itself, and a negated value without its sign. safetensors 0.8.0, torch 2.13.0, CPU.
# Guess: `save_file` writes the values that a tensor has, or refuses a view, as it refuses tensors that are not
# contiguous or share memory.
# Seen: `conj()` and the imaginary part of a conjugate are views with a mark, and contiguous; what lies behind the mark
# is written. `torch.save` keeps the mark. `resolve_conj().resolve_neg()` before saving makes it right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
cat > "$folder/tried.py" <<'CODE'
import io

import torch
from safetensors.torch import load, save

spectrum = torch.fft.rfft(torch.tensor([0.0, 1.0, 0.0, 0.0]))[1:2]
tensors = {"conjugate": spectrum.conj(), "imaginary": spectrum.clone().conj().imag}
file = io.BytesIO()
torch.save(tensors, file)
file.seek(0)
print("contiguous", [each.is_contiguous() for each in tensors.values()])
for name, found in {"kept": tensors, "torch": torch.load(file), "safetensors": load(save(tensors))}.items():
    print(name, found["conjugate"].tolist(), found["imaginary"].tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
contiguous [True, True]
kept [1j] [1.0]
torch [1j] [1.0]
safetensors [-1j] [-1.0]
SEEN
