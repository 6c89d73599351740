#!/usr/bin/env bash
# The tenth weight comes before the second. torch 2.13.0, CPU.
# Guess: nn.ParameterDict({...}) keeps the order of the dict, as nn.ModuleDict does.
# Seen: it sorts the names of a dict as texts, from ten on: 1, 10, 2. So `zip(weights.values(), inputs)` pairs others, and
# an optimizer's state, which goes by places, is in another order than after item by item. A list of pairs keeps its order.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

weights = {f"scale{n}": torch.nn.Parameter(torch.full((1,), float(n))) for n in (1, 2, 10)}
by_item = torch.nn.ParameterDict()
for name, weight in weights.items():
    by_item[name] = weight
inputs = [1.0, 2.0, 10.0]
for name, parameters in (
    ("of a dict", torch.nn.ParameterDict(weights)),
    ("of pairs", torch.nn.ParameterDict(list(weights.items()))),
    ("item by item", by_item),
):
    total = sum(weight.item() * x for weight, x in zip(parameters.values(), inputs))
    print(f"{name}: {list(parameters)}, sum of products {total:g}")
print("ModuleDict:", list(torch.nn.ModuleDict({name: torch.nn.Identity() for name in weights})))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
of a dict: ['scale1', 'scale10', 'scale2'], sum of products 41
of pairs: ['scale1', 'scale2', 'scale10'], sum of products 105
item by item: ['scale1', 'scale2', 'scale10'], sum of products 105
ModuleDict: ['scale1', 'scale2', 'scale10']
SEEN
