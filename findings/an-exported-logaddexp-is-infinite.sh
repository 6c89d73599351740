#!/usr/bin/env bash
# An exported logaddexp is infinite from 89 on, log1p and expm1 lose small numbers, and a half turn changes its sign.
# torch 2.13.0, onnxscript 0.7.2, onnxruntime 1.32.0, CPU.
# Guess: an exported model gives what the model gives, up to rounding. logaddexp, log1p and expm1 are there to be exact.
# Seen: they are written out as what they replace: log(exp(a) + exp(b)), log(1 + x) and exp(x) - 1. So the sum of paths of a
# CRF or of a CTC decoder is infinite, and log1p of 1e-8 is 0. atan2 of (0, -1) is -pi in place of pi. logsumexp of a stack is
# right.
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


class Model(torch.nn.Module):
    def forward(self, x):
        return (
            torch.logaddexp(x, x - 1),
            torch.logsumexp(torch.stack([x, x - 1]), 0),
            torch.log1p(x.abs()),
            torch.expm1(x.clamp(max=20)),
            torch.atan2(x * 0, -x.abs()),
        )


x = torch.tensor([1e-8, 1e-6, 5.0, 88.0, 89.0, 100.0])
file = f"{sys.argv[1]}/model.onnx"
with contextlib.redirect_stdout(io.StringIO()):
    torch.onnx.export(Model(), (x,), dynamo=True, verbose=False).save(file)
session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
exported = session.run(None, {session.get_inputs()[0].name: x.numpy()})
print("of", [f"{each:.1g}" for each in x.tolist()])
for name, ours, theirs in zip(("logaddexp", "logsumexp", "log1p", "expm1", "atan2(0, -x)"), Model()(x), exported, strict=True):
    print(f"{name}: torch    {[f'{each:.3g}' for each in ours.tolist()]}")
    print(f"{name}: exported {[f'{each:.3g}' for each in theirs.tolist()]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
of ['1e-08', '1e-06', '5', '9e+01', '9e+01', '1e+02']
logaddexp: torch    ['0.313', '0.313', '5.31', '88.3', '89.3', '100']
logaddexp: exported ['0.313', '0.313', '5.31', '88.3', 'inf', 'inf']
logsumexp: torch    ['0.313', '0.313', '5.31', '88.3', '89.3', '100']
logsumexp: exported ['0.313', '0.313', '5.31', '88.3', '89.3', '100']
log1p: torch    ['1e-08', '1e-06', '1.79', '4.49', '4.5', '4.62']
log1p: exported ['0', '9.54e-07', '1.79', '4.49', '4.5', '4.62']
expm1: torch    ['1e-08', '1e-06', '147', '4.85e+08', '4.85e+08', '4.85e+08']
expm1: exported ['0', '9.54e-07', '147', '4.85e+08', '4.85e+08', '4.85e+08']
atan2(0, -x): torch    ['3.14', '3.14', '3.14', '3.14', '3.14', '3.14']
atan2(0, -x): exported ['-3.14', '-3.14', '-3.14', '-3.14', '-3.14', '-3.14']
SEEN
