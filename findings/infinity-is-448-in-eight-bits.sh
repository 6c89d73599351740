#!/usr/bin/env bash
# An infinite value becomes 448, and a lost sign becomes a plus, in formats of eight bits. torch 2.13.0, CPU.
# Guess: what does not fit becomes infinite or NaN in each float8 format, and an infinite value stays one or becomes NaN.
# Seen: float8_e4m3fn, the usual one for weights and activations, makes 448 of it, of infinity too: an overflow before the cast
# is seen by no check behind it. float8_e4m3fnuz makes NaN of 500 (it ends at 240), and float8_e5m2 infinity of 100,000. float8_e8m0fnu, the format of
# scales, makes 2 of -2, and of 0 the smallest number that it has, without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch

values = torch.tensor([500.0, 100000.0, float("inf"), float("nan"), -500.0])
for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"):
    seen = values.to(getattr(torch, name)).float()
    many = values.repeat(100).to(getattr(torch, name)).float()
    assert torch.equal(many.nan_to_num(-1.0), seen.repeat(100).nan_to_num(-1.0))
    print(f"{name}:", seen.tolist())
print("float8_e8m0fnu of -2, 3 and 0:", torch.tensor([-2.0, 3.0, 0.0]).to(torch.float8_e8m0fnu).float().tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
float8_e4m3fn: [448.0, 448.0, 448.0, nan, -448.0]
float8_e4m3fnuz: [nan, nan, nan, nan, nan]
float8_e5m2: [512.0, inf, inf, nan, -512.0]
float8_e8m0fnu of -2, 3 and 0: [2.0, 4.0, 5.877471754111438e-39]
SEEN
