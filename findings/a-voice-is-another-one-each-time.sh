#!/usr/bin/env bash
# The embedding of one voice is another one each time, in evaluations too. speechbrain 1.1.2, torch 2.13.0, CPU.
# Guess: an x-vector in eval() is a function of the recording; statistics pooling takes a mean and a deviation.
# Seen: StatisticsPooling adds random numbers to the mean, whatever the mode. A frame of zeros has the mean of the noise, two
# evaluations differ, and each one moves the generator, so that the training behind it draws other numbers.
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
from speechbrain.nnet.pooling import StatisticsPooling

pooling = StatisticsPooling().eval()
recording = torch.zeros(1, 5, 3)
torch.manual_seed(0)
with torch.no_grad():
    first = pooling(recording)
    second = pooling(recording)
print("mean of zeros:", [f"{value:.6f}" for value in first[0, 0, :3].tolist()])
print("and again:", [f"{value:.6f}" for value in second[0, 0, :3].tolist()])
print("draws after none, one and two evaluations:", end="")
for count in range(3):
    torch.manual_seed(0)
    for _ in range(count):
        pooling(recording)
    print(f" {torch.rand(1).item():.4f}", end="")
print()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
mean of zeros: ['0.000010', '0.000049', '0.000090']
and again: ['0.000010', '0.000077', '0.000090']
draws after none, one and two evaluations: 0.4963 0.4556 0.0223
SEEN
