#!/usr/bin/env bash
# Finite gradients become zero by clipping. torch 2.13.0, CPU.
# Guess: clip_grad_norm_ scales gradients down to the norm that is asked for; what is finite stays so.
# Seen: it takes the norm of float16 in float16. Above 65504 this is infinite, and each gradient is multiplied by
# 1 / infinity: the model stands still, with no error. `error_if_nonfinite=True` calls the gradients non-finite.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

for dtype in (torch.float32, torch.bfloat16, torch.float16):
    weight = torch.nn.Parameter(torch.zeros(100_000, dtype=dtype))
    weight.grad = torch.full_like(weight, 300.0)
    norm = torch.nn.utils.clip_grad_norm_([weight], 1.0)
    after = torch.linalg.vector_norm(weight.grad, dtype=torch.float32)
    print(dtype, "norm before", f"{float(norm):.2g}", "and after", round(float(after), 2))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch.float32 norm before 9.5e+04 and after 1.0
torch.bfloat16 norm before 9.5e+04 and after 1.0
torch.float16 norm before inf and after 0.0
SEEN
