#!/usr/bin/env bash
# A compiled softshrink makes 0 of NaN. torch 2.13.0, CPU.
# Guess: a compiled function passes NaN on as the function itself does, so that a training that diverges shows it in its loss.
# Seen: compiled, `F.softshrink(nan)` is 0: the loss stays finite, and the gradient of what gave NaN is 0. relu, hardshrink,
# hardtanh and the others pass NaN on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.nn.functional as F

for name in ("softshrink", "hardshrink", "relu", "hardtanh", "softsign", "tanhshrink", "leaky_relu"):
    function, found = getattr(F, name), []
    for call in (function, torch.compile(function)):
        values = torch.tensor([float("nan"), 2.0], requires_grad=True)
        made = call(values)
        made.sum().backward()
        found.append(f"{made[0].item()} with the gradient {values.grad[0].item()}")
    print(f"{name} of NaN: {found[0]}, compiled {found[1]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
softshrink of NaN: nan with the gradient 1.0, compiled 0.0 with the gradient 0.0
hardshrink of NaN: nan with the gradient 1.0, compiled nan with the gradient 1.0
relu of NaN: nan with the gradient 1.0, compiled nan with the gradient 1.0
hardtanh of NaN: nan with the gradient 1.0, compiled nan with the gradient 1.0
softsign of NaN: nan with the gradient nan, compiled nan with the gradient nan
tanhshrink of NaN: nan with the gradient nan, compiled nan with the gradient nan
leaky_relu of NaN: nan with the gradient 0.009999999776482582, compiled nan with the gradient 0.009999999776482582
SEEN
