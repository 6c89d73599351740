#!/usr/bin/env bash
# The first step sets all words to zero that are not in its batch. pytorch_optimizer 4.1.0, torch 2.13.0, CPU.
# Guess: with FTRL, a weight whose gradient is 0 stays as it is, unless there is a weight decay.
# Seen: FTRL computes each weight anew from sums of gradients, which begin at 0, and not from the weight. So the first step sets what
# has no gradient in it to 0: rows of an embedding that the batch lacks, and what is behind a ReLU that gives 0. Pretrained rows are
# lost, and two layers whose weights are all 0 have no gradient from then on. What has a gradient keeps its value.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet pytorch_optimizer==4.1.0
cat > "$folder/tried.py" <<'CODE'
import pytorch_optimizer
import torch

for name, make in (("SGD", torch.optim.SGD), ("Adagrad", torch.optim.Adagrad), ("FTRL", pytorch_optimizer.FTRL)):
    torch.manual_seed(0)
    words = torch.nn.Embedding(5, 2)
    optimizer = make(words.parameters(), lr=0.01)
    before = words.weight.detach().clone()
    words(torch.tensor([1, 2])).square().sum().backward()
    optimizer.step()
    print(f"{name}: the rows 1 and 2 move by {(words.weight - before)[1:3].abs().max().item():.3f},", end=" ")
    print(f"row 0 was {[round(each, 2) for each in before[0].tolist()]}", end=" ")
    print(f"and is {[round(each, 2) for each in words.weight[0].tolist()]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
SGD: the rows 1 and 2 move by 0.044, row 0 was [1.54, -0.29] and is [1.54, -0.29]
Adagrad: the rows 1 and 2 move by 0.010, row 0 was [1.54, -0.29] and is [1.54, -0.29]
FTRL: the rows 1 and 2 move by 0.010, row 0 was [1.54, -0.29] and is [0.0, 0.0]
SEEN
