#!/usr/bin/env bash
# A validation before the training chooses the codebook. vector-quantize-pytorch 1.32.0, torch 2.13.0, CPU.
# Guess: kmeans_init takes the first batch of the training; in eval() a quantizer changes nothing.
# Seen: it takes the first batch of any kind. A sanity check on a few validation samples, or a summary of the model with noise,
# decides the codes that training starts from. Later evaluations change nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet vector-quantize-pytorch==1.32.0
cat > "$folder/tried.py" <<'CODE'
import torch
from vector_quantize_pytorch import VectorQuantize

for check_first in (False, True):
    torch.manual_seed(0)
    quantizer = VectorQuantize(dim=4, codebook_size=8, kmeans_init=True)
    train, sanity = torch.randn(2, 64, 4), torch.randn(1, 32, 4) * 0.01 + 5
    if check_first:
        quantizer.eval()
        with torch.no_grad():
            quantizer(sanity)
        quantizer.train()
    quantizer(train)
    used = quantizer(train)[1].unique().numel()
    print(f"a sanity check first: {check_first}, codes that the training batch uses: {used} of 8")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
a sanity check first: False, codes that the training batch uses: 8 of 8
a sanity check first: True, codes that the training batch uses: 1 of 8
SEEN
