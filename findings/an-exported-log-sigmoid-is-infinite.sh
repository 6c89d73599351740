#!/usr/bin/env bash
# An exported model gives minus infinity where the model gives -18. torch 2.13.0, onnxscript 0.7.2, onnxruntime 1.32.0, CPU.
# Guess: an exported model gives what the model gives, up to rounding.
# Seen: logsigmoid is written as the logarithm of a sigmoid, and the sigmoid of onnxruntime is 0 from -18 on, and off before
# it. One sure mistake makes the mean log-likelihood of a test set infinite. -softplus(-x) is right. clamp(min=0.5) makes
# 3.4e38 of infinity.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0
cat > "$folder/tried.py" <<'CODE'
import contextlib
import io
import sys

import onnxruntime
import torch
from torch.nn import functional


class Model(torch.nn.Module):
    def forward(self, x):
        return functional.logsigmoid(x), -functional.softplus(-x), x.clamp(min=0.5)


x = torch.tensor([-2.0, -15.0, -18.0, -20.0, -100.0, torch.inf])
file = f"{sys.argv[1]}/model.onnx"
with contextlib.redirect_stdout(io.StringIO()):
    torch.onnx.export(Model().eval(), (x,), file, dynamo=True)
session = onnxruntime.InferenceSession(file)
exported = session.run(None, {session.get_inputs()[0].name: x.numpy()})
print("x:", x.tolist())
for name, ours, theirs in zip(("logsigmoid", "softplus", "clamp(min=0.5)"), Model()(x), exported):
    print(f"{name}: torch {[f'{each:.4g}' for each in ours.tolist()]}, ONNX {[f'{each:.4g}' for each in theirs.tolist()]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
x: [-2.0, -15.0, -18.0, -20.0, -100.0, inf]
logsigmoid: torch ['-2.127', '-15', '-18', '-20', '-100', '0'], ONNX ['-2.127', '-14.84', '-inf', '-inf', '-inf', '0']
softplus: torch ['-2.127', '-15', '-18', '-20', '-100', '-0'], ONNX ['-2.127', '-15', '-18', '-20', '-100', '-0']
clamp(min=0.5): torch ['0.5', '0.5', '0.5', '0.5', '0.5', 'inf'], ONNX ['0.5', '0.5', '0.5', '0.5', '0.5', '3.403e+38']
SEEN
