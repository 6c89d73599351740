#!/usr/bin/env bash
# What a differential equation reads from outside gets no gradient by the adjoint method. torchdiffeq 0.2.5, torch 2.13.0.
# Guess: odeint_adjoint gives the gradients of odeint in less memory, or says which of them it cannot give.
# Seen: it gives those of the start, of the times and of func.parameters(). A tensor that func has as an attribute or closes over,
# such as the output of an encoder, has none: the encoder is not trained at all, without a word. `adjoint_params=` takes it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torchdiffeq==0.2.5
cat > "$folder/tried.py" <<'CODE'
import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, t, y):
        return self.layer(torch.cat([y, self.context], -1))


torch.manual_seed(0)
encoder, dynamics, inputs = nn.Linear(3, 1), Dynamics(), torch.randn(4, 3)
for solve in (odeint, odeint_adjoint):
    for with_context in (False, True) if solve is odeint_adjoint else (False,):
        encoder.zero_grad()
        dynamics.zero_grad()
        dynamics.context = encoder(inputs)
        options = {"adjoint_params": (*dynamics.parameters(), dynamics.context)} if with_context else {}
        solve(dynamics, torch.ones(4, 1), torch.tensor([0.0, 1.0]), **options)[-1].sum().backward()
        gradient = encoder.weight.grad
        print(
            f"{solve.__name__}{' with adjoint_params=' if with_context else ''}: gradient of the layer",
            f"{dynamics.layer.weight.grad.norm().item():.3f}, of the encoder",
            None if gradient is None else f"{gradient.norm().item():.3f}",
        )
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
odeint: gradient of the layer 4.248, of the encoder 0.854
odeint_adjoint: gradient of the layer 4.248, of the encoder None
odeint_adjoint with adjoint_params=: gradient of the layer 4.248, of the encoder 0.854
SEEN
