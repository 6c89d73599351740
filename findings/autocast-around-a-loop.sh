#!/usr/bin/env bash
# An autocast around a whole loop: the weights look frozen. torch 2.13.0, CPU.
# Guess: a `with torch.autocast(...)` may stand around the step or around the loop, and only rounding differs.
# Seen: autocast keeps the cast copies of the weights until its outermost block ends, and an optimizer that
# writes into the weights does not make it cast them again. Around the loop, each step computes with the first
# weights: the loss stays the same while the weights run away. With cache_enabled=False the loss falls.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch

def losses(**options):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    seen = []
    with torch.autocast("cpu", torch.bfloat16, **options):
        for _ in range(4):
            loss = (model(torch.ones(2, 4)) - 3).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(loss.item())
    return seen

kept, anew = losses(), losses(cache_enabled=False)
print("around the loop: equal losses", len(set(kept)) == 1)
print("without the cache: falling", anew == sorted(anew, reverse=True) and len(set(anew)) == 4)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
around the loop: equal losses True
without the cache: falling True
SEEN
