#!/usr/bin/env bash
# Ctrl-C ends a script by another code once it has an optimizer. torch 2.13.0, Python 3.11, CPU.
# Guess: a script that Ctrl-C ends dies of SIGINT, 130 in a shell, as Python's scripts do, also with torch; so a shell's
# loop over learning rates ends with it.
# Seen: once an optimizer is made, which imports torch._dynamo, the exit code is 1, that of any exception: bash takes it
# for a failed command, and its loop starts the next script.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import subprocess
import sys

END = "; import os, signal; os.kill(os.getpid(), signal.SIGINT)"
for name, code in {
    "torch": "import torch",
    "a step by hand": "import torch; torch.nn.Linear(1, 1)(torch.ones(1, 1)).sum().backward()",
    "an optimizer": "import torch; torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)",
    "torch._dynamo": "import torch._dynamo",
}.items():
    print(name, subprocess.run([sys.executable, "-c", code + END], stderr=subprocess.DEVNULL).returncode)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch -2
a step by hand -2
an optimizer 1
torch._dynamo 1
SEEN
