#!/usr/bin/env bash
# A filter that lets everything pass cuts off what is above 1. torchaudio 2.11.1, torch 2.13.0, CPU.
# Guess: filters of torchaudio.functional are linear: twice the input is twice the output.
# Seen: lfilter, and so each biquad filter, clamps its output to -1 and 1. Samples of 16 bits as they are, or a normalised
# waveform, become a square wave; an offset is cut before a high pass has taken it away. clamp=False of lfilter leaves the
# values.
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
from torchaudio import functional

waveform = torch.tensor([0.2, -0.4, 0.5, -0.2]).repeat(200)
for scale in (1, 2, 32768):
    filtered = functional.equalizer_biquad(scale * waveform, 16000, 1000.0, gain=0.0)
    print(f"times {scale}: {[round(each, 2) for each in filtered[-4:].tolist()]}")
both = functional.highpass_biquad(waveform + 3.0, 16000, 10.0)
print(f"a high pass of an offset of 3 begins with {both[:3].tolist()}")
linear = functional.lfilter(2 * waveform, torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]), clamp=False)
print(f"lfilter(clamp=False): {[round(each, 2) for each in linear[-4:].tolist()]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
times 1: [0.2, -0.4, 0.5, -0.2]
times 2: [0.4, -0.8, 1.0, -0.4]
times 32768: [1.0, -1.0, 1.0, -1.0]
a high pass of an offset of 3 begins with [1.0, 1.0, 1.0]
lfilter(clamp=False): [0.4, -0.8, 1.0, -0.4]
SEEN
