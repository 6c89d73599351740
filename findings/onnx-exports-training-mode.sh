#!/usr/bin/env bash
# The newer ONNX exporter writes what training does, the older one what evaluation does. torch 2.13.0.
# Guess: `torch.onnx.export` exports for inference, whatever mode the model is in, as it did for years.
# Seen: with dynamo=True (the default now) a model in training mode keeps its Dropout, and the file draws
# at each call; with dynamo=False it has none. Neither says a word. Call `eval()` first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0
cat > "$folder/tried.py" <<'CODE'
import os
import tempfile
import numpy
import onnxruntime
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Dropout(0.5)).train()
for dynamo in (True, False):
    path = os.path.join(tempfile.mkdtemp(), "model.onnx")
    torch.onnx.export(model, (torch.ones(1, 4),), path, dynamo=dynamo, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: numpy.ones((1, 4), numpy.float32)}
    one, two = (session.run(None, feed)[0] for _ in range(2))
    print(f"dynamo={dynamo}: zeros {bool((one == 0).any())}, two calls equal {bool((one == two).all())}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
dynamo=True: zeros True, two calls equal False
dynamo=False: zeros False, two calls equal True
SEEN
