#!/usr/bin/env bash
# Resetting one network resets all of them. snntorch 1.0.0, torch 2.13.0, CPU.
# Guess: utils.reset(net) sets the hidden states of net to zero, as its docs say.
# Seen: it looks at which kinds of neuron net has, and resets each neuron of these kinds in the process. A teacher, an average
# of weights or a validation that is reset for its own sequence takes the membrane potential from the network that trains.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet snntorch==1.0.0
cat > "$folder/tried.py" <<'CODE'
import snntorch
import torch
from snntorch import utils

def network(kind):
    torch.manual_seed(0)
    neuron = kind(beta=0.9, init_hidden=True, threshold=5.0)
    return torch.nn.Sequential(torch.nn.Linear(2, 2), neuron)

def potential(net):
    return [round(each, 3) for each in net[1].mem.flatten().tolist()]

trained, teacher, other = network(snntorch.Leaky), network(snntorch.Leaky), network(snntorch.Lapicque)
for each in (trained, teacher, other):
    each(torch.ones(1, 2))
print("before:", potential(trained), potential(teacher))
utils.reset(other)
print("a network of another kind is reset:", potential(trained), potential(teacher))
utils.reset(teacher)
print("the teacher is reset:", potential(trained), potential(teacher))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
before: [0.102, -0.913] [0.102, -0.913]
a network of another kind is reset: [0.102, -0.913] [0.102, -0.913]
the teacher is reset: [0.0, 0.0] [0.0, 0.0]
SEEN
