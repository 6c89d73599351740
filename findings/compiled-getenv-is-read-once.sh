#!/usr/bin/env bash
# Two ways to read a variable of the environment differ in a compiled function. torch 2.13.0, CPU.
# Guess: what a compiled function reads in Python is guarded, as attributes, globals, lists and `os.environ["X"]` are: a change
# compiles it anew.
# Seen: `os.environ` and `os.environ.get` are; `os.getenv` keeps the value of the first call for ever. So does a method that is
# replaced on its class, while one that is replaced on the object, or a function of the module, is seen.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import os
import torch

class Scale:
    factor = 1.0

    def by_method(self, values):
        return values * 1.0

scale = Scale()

def helper(values):
    return values * 1.0

def others(name):
    global helper
    five = lambda values: values * 5.0
    if name == "a function of the module":
        helper = five
    elif name == "a class attribute":
        Scale.factor = 5.0
    elif name == "a method on the object":
        scale.by_method = lambda values: values * 5.0
    elif name == "a method on the class":
        Scale.by_method = lambda self, values: values * 5.0
    else:
        os.environ["FACTOR"] = "5.0"

for name, function in {
    'os.environ["FACTOR"]': lambda values: values * float(os.environ["FACTOR"]),
    'os.environ.get("FACTOR")': lambda values: values * float(os.environ.get("FACTOR")),
    'os.getenv("FACTOR")': lambda values: values * float(os.getenv("FACTOR")),
    "a function of the module": lambda values: helper(values),
    "a class attribute": lambda values: values * scale.factor,
    "a method on the class": lambda values: scale.by_method(values),
    "a method on the object": lambda values: scale.by_method(values),
}.items():
    torch.compiler.reset()
    os.environ["FACTOR"], Scale.factor, Scale.by_method = "1.0", 1.0, lambda self, values: values * 1.0
    vars(scale).clear()
    compiled, one = torch.compile(function), torch.ones(1)
    compiled(one)
    others(name)
    print(f"{name}: changed to {function(one).item()}, compiled {compiled(one).item()}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
os.environ["FACTOR"]: changed to 5.0, compiled 5.0
os.environ.get("FACTOR"): changed to 5.0, compiled 5.0
os.getenv("FACTOR"): changed to 5.0, compiled 1.0
a function of the module: changed to 5.0, compiled 5.0
a class attribute: changed to 5.0, compiled 5.0
a method on the class: changed to 5.0, compiled 1.0
a method on the object: changed to 5.0, compiled 5.0
SEEN
