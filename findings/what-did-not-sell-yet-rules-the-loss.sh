#!/usr/bin/env bash
# A product that begins to sell has a loss of 10 ** 20 in a batch of losses near 3. gluonts 0.17.0, torch 2.13.0, CPU.
# Guess: MeanScaler scales a history of zeros by default_scale, "for elements that are constantly zero", or by 1, or by the mean of the
# batch.
# Seen: that is for histories without any observation. Zeros that were observed have a scale of 1e-10, so that a first sale of 2 is
# 2 * 10 ** 10 after scaling: with a normal distribution its loss is 10 ** 20, with Student's, DeepAR's own, twenty times the others'.
# default_scale=1 changes nothing; minimum_scale=1 does. StdScaler has at least 0.003.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet gluonts==0.17.0 lightning==2.6.6 scipy==1.17.1
cat > "$folder/tried.py" <<'CODE'
import torch
from gluonts.torch.distributions import NormalOutput, StudentTOutput
from gluonts.torch.scaler import MeanScaler, StdScaler

past = torch.tensor([[3.0, 5.0, 4.0, 6.0], [0.0, 0.0, 0.0, 0.0]])
sold = torch.tensor([[5.0], [2.0]])
for name, scaler in (
    ("MeanScaler", MeanScaler(dim=1, keepdim=True)),
    ("default_scale=1", MeanScaler(dim=1, keepdim=True, default_scale=1.0)),
    ("minimum_scale=1", MeanScaler(dim=1, keepdim=True, minimum_scale=1.0)),
    ("StdScaler", StdScaler(dim=1, keepdim=True)),
):
    _, shift, scale = scaler(past, torch.ones_like(past))
    found = []
    for output in (NormalOutput(), StudentTOutput()):
        torch.manual_seed(0)
        parameters = output.get_args_proj(4)(torch.zeros(2, 1, 4))
        losses = -output.distribution(parameters, loc=shift, scale=scale).log_prob(sold).flatten()
        found.append(f"{type(output).__name__} {losses[0].item():.1g} and {losses[1].item():.1g}")
    print(f"{name}: scales {scale[0].item():.2g} and {scale[1].item():.2g}, losses by", ", ".join(found))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
MeanScaler: scales 4.5 and 1e-10, losses by NormalOutput 4 and 3e+20, StudentTOutput 3 and 6e+01
default_scale=1: scales 4.5 and 1e-10, losses by NormalOutput 4 and 3e+20, StudentTOutput 3 and 6e+01
minimum_scale=1: scales 4.5 and 1, losses by NormalOutput 4 and 5, StudentTOutput 3 and 3
StdScaler: scales 1.1 and 0.0032, losses by NormalOutput 1 and 3e+05, StudentTOutput 0.8 and 2e+01
SEEN
