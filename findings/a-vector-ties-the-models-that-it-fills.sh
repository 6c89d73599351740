#!/usr/bin/env bash
# Two models that were filled from one vector train each other. torch 2.13.0, CPU.
# Guess: vector_to_parameters copies the slices of the vector into the parameters, as its documentation says.
# Seen: the parameters become views of the vector. A model that is trained changes the vector, and each other model that was
# filled from it: the members of a population, or the clients of a federated average.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.manual_seed(0)
start, clients = nn.Linear(3, 1), [nn.Linear(3, 1), nn.Linear(3, 1)]
vector = parameters_to_vector(start.parameters()).detach()
kept = vector.clone()
for client in clients:
    vector_to_parameters(vector, client.parameters())
optimizer = torch.optim.SGD(clients[0].parameters(), lr=0.1)
clients[0](torch.ones(1, 3)).sum().backward()
optimizer.step()
print("the trained client has moved:", not torch.equal(parameters_to_vector(clients[0].parameters()), kept))
print("the other client has moved:", not torch.equal(parameters_to_vector(clients[1].parameters()), kept))
print("the vector has moved:", not torch.equal(vector, kept))
print("the model that it was read from has moved:", not torch.equal(parameters_to_vector(start.parameters()), kept))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
the trained client has moved: True
the other client has moved: True
the vector has moved: True
the model that it was read from has moved: False
SEEN
