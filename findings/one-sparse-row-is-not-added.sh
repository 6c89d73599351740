#!/usr/bin/env bash
# A bias of a sparse embedding is not trained by single samples. torch 2.13.0, CPU.
# Guess: SGD adds a sparse gradient as it adds the dense one, whatever the batch holds.
# Seen: where the lookup gives a single number and a sum is taken over it, the gradient has one value without a stride, and
# adding it to a dense tensor adds nothing. So a bias of users in a batch of one stands still, without a word. Two samples,
# a mean, Adagrad, which makes the gradient anew, or sparse=False train it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

def trained(users, reduce, sparse, make=torch.optim.SGD):
    bias = torch.nn.Embedding(4, 1, sparse=sparse)
    torch.nn.init.zeros_(bias.weight)
    optimizer = make(bias.parameters(), lr=0.1)
    (reduce(bias(torch.tensor(users))) - 5).square().backward()
    optimizer.step()
    return [round(value, 3) for value in bias.weight.flatten().tolist()]

print("dense, one user ", trained([2], torch.sum, False))
print("sparse, one user", trained([2], torch.sum, True))
print("sparse, a mean  ", trained([2], torch.mean, True))
print("sparse, Adagrad ", trained([2], torch.sum, True, torch.optim.Adagrad))
print("sparse, two     ", trained([2, 3], torch.sum, True))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
dense, one user  [0.0, 0.0, 1.0, 0.0]
sparse, one user [0.0, 0.0, 0.0, 0.0]
sparse, a mean   [0.0, 0.0, 1.0, 0.0]
sparse, Adagrad  [0.0, 0.0, 0.1, 0.0]
sparse, two      [0.0, 0.0, 1.0, 1.0]
SEEN
