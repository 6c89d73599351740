#!/usr/bin/env bash
# ClippedAdam's clip_norm clips no norm: it cuts each number of a gradient to it. pyro-ppl 1.9.2, torch 2.13.0, CPU.
# Guess: `clip_norm`, "magnitude of norm to which gradients are clipped", scales a gradient down to that norm.
# Seen: it clamps each number, so that a gradient turns: (30, 0.1, -40) becomes (1, 0.1, -1), of norm 1.4. A gradient of a
# million numbers may have a norm of 10,000 with the default of 10, and one whose norm is far above 10 is not touched if its
# numbers are small. So a rate that was found with clip_grad_norm_ does not carry over.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet pyro-ppl==1.9.2
cat > "$folder/tried.py" <<'CODE'
import torch
from pyro.optim.clipped_adam import ClippedAdam

for name, gradient, norm in (
    ("one large number", torch.tensor([30.0, 0.1, -40.0]), 1.0),
    ("a million numbers of 9", torch.full((1_000_000,), 9.0), 10.0),
):
    weights = [torch.zeros_like(gradient).requires_grad_() for _ in range(2)]
    for weight in weights:
        weight.grad = gradient.clone()
    ClippedAdam(weights[:1], clip_norm=norm).step()
    torch.nn.utils.clip_grad_norm_(weights[1:], norm)
    for library, weight in zip(("pyro", "torch"), weights, strict=True):
        first = [round(each, 3) for each in weight.grad[:3].tolist()]
        print(f"{name}, a norm of {norm:.0f}: {library} leaves {first} with a norm of {weight.grad.norm().item():.1f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
one large number, a norm of 1: pyro leaves [1.0, 0.1, -1.0] with a norm of 1.4
one large number, a norm of 1: torch leaves [0.6, 0.002, -0.8] with a norm of 1.0
a million numbers of 9, a norm of 10: pyro leaves [9.0, 9.0, 9.0] with a norm of 9000.0
a million numbers of 9, a norm of 10: torch leaves [0.01, 0.01, 0.01] with a norm of 10.0
SEEN
