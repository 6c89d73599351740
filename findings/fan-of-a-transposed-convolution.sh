#!/usr/bin/env bash
# A transposed convolution is initialised by the wrong fan. torch 2.13.0, CPU.
# Guess: kaiming_normal_(mode="fan_in") keeps the variance of a forward pass, of a transposed convolution too.
# Seen: fan_in is taken from the second size of the weight, which here is the number of outputs. From 512 to 8 channels, the
# output is 8 times as large as the input. The weights that ConvTranspose2d starts with have the same fan. mode="fan_out" is
# the fan of the inputs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

for name, make in (("Conv2d", torch.nn.Conv2d), ("ConvTranspose2d", torch.nn.ConvTranspose2d)):
    for mode in ("fan_in", "fan_out"):
        torch.manual_seed(0)
        layer = make(512, 8, 3, padding=1, bias=False)
        torch.nn.init.kaiming_normal_(layer.weight, mode=mode, nonlinearity="linear")
        with torch.no_grad():
            scale = layer(torch.randn(4, 512, 32, 32))[..., 2:-2, 2:-2].std()
        print(f"{name}, {mode}: outputs of {scale:.1f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
Conv2d, fan_in: outputs of 1.0
Conv2d, fan_out: outputs of 8.0
ConvTranspose2d, fan_in: outputs of 7.9
ConvTranspose2d, fan_out: outputs of 1.0
SEEN
