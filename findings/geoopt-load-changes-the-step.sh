#!/usr/bin/env bash
# Loading an optimizer's own state changes what it does next. geoopt 0.5.1, torch 2.13.0.
# Guess: `optimizer.load_state_dict(optimizer.state_dict())` changes nothing.
# Seen: RiemannianAdam counts its steps by an int in the state of each parameter; torch's load turns it into a float32
# tensor, by which the corrections of the moments are then computed. Later weights differ in the last bits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet geoopt==0.5.1
cat > "$folder/tried.py" <<'CODE'
import geoopt
import torch

def trained(is_loaded):
    torch.manual_seed(0)
    start = torch.randn(6)
    weight = geoopt.ManifoldParameter(start / start.norm(), manifold=geoopt.Sphere())
    optimizer = geoopt.optim.RiemannianAdam([weight], lr=0.1)
    target = torch.arange(6.0) / 10
    for step in range(12):
        if is_loaded and step == 6:
            optimizer.load_state_dict(optimizer.state_dict())
        optimizer.zero_grad()
        ((weight - target) ** 2).sum().backward()
        optimizer.step()
    return weight.detach(), type(optimizer.state[weight]["step"]).__name__

(whole, count), (loaded, count_then) = trained(False), trained(True)
print(count, "becomes", count_then)
print("same weights:", torch.equal(whole, loaded), "nearly:", torch.allclose(whole, loaded))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
int becomes Tensor
same weights: False nearly: True
SEEN
