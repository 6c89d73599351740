#!/usr/bin/env bash
# A little label smoothing multiplies a loss by the number of frames, and class 0 is not trained. speechbrain 1.1.2, torch 2.13.0, CPU.
# Guess: kldiv_loss with label_smoothing=0.001 is nearly the one with 0, which is the mean over frames within the lengths.
# Seen: as soon as there is smoothing, the "mean" is the sum over all frames of the batch, what lies behind a recording's length counts,
# and frames of class 0 have no loss and no gradient, as it is `pad_idx`. A rate that suited is as many times too large as a batch has
# frames. reduction="batchmean" divides by the recordings, pad_idx=-1 trains class 0, and padding must be pad_idx.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-deps torchaudio==2.11.1
"$folder/env/bin/pip" install --quiet speechbrain==1.1.2
# beside a torch for CPUs, the part of torchaudio for GPUs does not load; it is not used
"$folder/env/bin/python" -c 'import torch; raise SystemExit(torch.version.cuda is not None)' &&
    rm -r "$folder"/env/lib/python3*/site-packages/torchaudio/lib
cat > "$folder/tried.py" <<'CODE'
import torch
from speechbrain.nnet.losses import kldiv_loss

def measured(targets, smoothing, lengths=None):
    scores = torch.zeros(2, 100, 4, requires_grad=True)
    loss = kldiv_loss(scores.log_softmax(-1), targets, lengths, label_smoothing=smoothing)
    loss.backward()
    return f"{loss.item():.2f}, gradient {scores.grad.norm().item():.2f}"

ones, zeros = torch.ones(2, 100, dtype=torch.int64), torch.zeros(2, 100, dtype=torch.int64)
behind = torch.where(torch.arange(100) < 50, 1, 2).repeat(2, 1)
for smoothing in (0.0, 0.001, 0.1):
    print(f"smoothing {smoothing}: loss of class 1 {measured(ones, smoothing)}; of class 0 {measured(zeros, smoothing)};", end=" ")
    print(f"of the first half of each recording {measured(behind, smoothing, torch.tensor([0.5, 0.5]))}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
smoothing 0.0: loss of class 1 1.39, gradient 0.06; of class 0 1.39, gradient 0.06; of the first half of each recording 1.39, gradient 0.09
smoothing 0.001: loss of class 1 275.46, gradient 12.23; of class 0 0.00, gradient 0.00; of the first half of each recording 275.46, gradient 12.23
smoothing 0.1: loss of class 1 190.27, gradient 10.61; of class 0 0.00, gradient 0.00; of the first half of each recording 190.27, gradient 10.61
SEEN
