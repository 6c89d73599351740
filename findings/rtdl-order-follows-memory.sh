#!/usr/bin/env bash
# An optimizer's parameters come in another order in each process. rtdl_revisiting_models 0.0.2, torch 2.13.0.
# Guess: `make_default_optimizer()` groups the parameters in the order of the model.
# Seen: it goes through a set of tensors, whose order follows their addresses, so each process has another one. torch
# saves an optimizer's state by the places of its parameters: loaded in a new process, moments go to other weights, and
# where the shapes agree nothing says so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet rtdl_revisiting_models==0.0.2
cat > "$folder/tried.py" <<'CODE'
import subprocess
import sys

SCRIPT = """
from rtdl_revisiting_models import FTTransformer

sizes = FTTransformer.get_default_kwargs(1)
model = FTTransformer(n_cont_features=3, cat_cardinalities=[], d_out=1, **sizes)
names = {id(each): name for name, each in model.named_parameters()}
groups = model.make_default_optimizer().param_groups
print([names[id(each)] for group in groups for each in group["params"]])
"""

def order():
    return subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True).stdout

seen = [order() for _ in range(4)]
print("the same names:", len({*map(len, seen)}) == 1 and len(seen[0]) > 100)
print("the same order in four processes:", len({*seen}) == 1)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
the same names: True
the same order in four processes: False
SEEN
