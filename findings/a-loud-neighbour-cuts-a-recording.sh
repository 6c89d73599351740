#!/usr/bin/env bash
# What a quiet recording sounds like depends on the others in its batch. torchaudio 2.11.1, torch 2.13.0, CPU.
# Guess: MFCC and AmplitudeToDB compute each waveform of a batch by itself, as the spectrogram before them does.
# Seen: a batch (recordings, time) counts as the channels of one recording, and all below its loudest part less 80 dB is cut
# off. Beside a loud recording, a quiet one has the same value in each frame. As (recordings, 1, time) each is by itself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-deps torchaudio==2.11.1
# beside a torch for CPUs, the part of torchaudio for GPUs does not load; it is not used
"$folder/env/bin/python" -c 'import torch; raise SystemExit(torch.version.cuda is not None)' &&
    rm -r "$folder"/env/lib/python3*/site-packages/torchaudio/lib
cat > "$folder/tried.py" <<'CODE'
import torch
from torchaudio.transforms import MFCC, AmplitudeToDB

torch.manual_seed(0)
quiet, loud = 1e-4 * torch.sin(torch.arange(4000) ** 1.5)[None], torch.sin(torch.arange(4000) / 9)[None] * 2
features = MFCC(16000, n_mfcc=3, melkwargs={"n_fft": 400, "n_mels": 23})
batch = torch.cat([quiet, loud])
for name, coefficients in {
    "alone": features(quiet)[0],
    "beside a loud one": features(batch)[0],
    "with a dimension of channels": features(batch[:, None])[0, 0],
}.items():
    print(f"{name}: {[round(value) for value in coefficients[:, 3].tolist()]}, deviation {coefficients[1].std():.2f}")
power = torch.tensor([[1e-6, 1e-5]])
print("alone", AmplitudeToDB(top_db=80)(power).tolist(), end=", ")
print("beside a loud one", AmplitudeToDB(top_db=80)(torch.stack([power, power * 1e9]))[0].tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
alone: [-251, -9, 2], deviation 31.24
beside a loud one: [-161, 0, 0], deviation 0.00
with a dimension of channels: [-251, -9, 2], deviation 31.24
alone [[-60.0, -50.0]], beside a loud one [[-40.0, -40.0]]
SEEN
