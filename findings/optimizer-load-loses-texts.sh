#!/usr/bin/env bash
# Texts in an optimizer's state do not outlive a load. torch 2.13.0.
# Guess: `load_state_dict` casts tensors, and gives everything else back as it was.
# Seen: what can be iterated is made again from its parts, and a text is made of the generator itself: "cubic" comes
# back as "<generator object ...>". Numbers, None and texts in the groups stay. A state that keeps the equation of
# an einsum or the name of a mode there, as kron-torch's does, is saved well and fails or trains otherwise afterwards.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch

weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([{"params": [weight], "mode": "cubic"}], 0.1)
optimizer.state[weight] = {"mode": "cubic", "names": ("a", "b"), "count": 3, "nothing": None}
optimizer.load_state_dict(optimizer.state_dict())
print("in a group:", optimizer.param_groups[0]["mode"])
state = optimizer.state[weight]
print("in the state:", state["mode"].partition(" ")[0], [each[:10] for each in state["names"]])
print("beside it:", state["count"], state["nothing"])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
in a group: cubic
in the state: <generator ['<generator', '<generator']
beside it: 3 None
SEEN
