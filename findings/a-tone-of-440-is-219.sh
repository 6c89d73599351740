#!/usr/bin/env bash
# The pitch of a tone of 440 Hz is 219 Hz. torchaudio 2.11.1, torch 2.13.0, CPU.
# Guess: detect_pitch_frequency finds the frequency of a pure tone between its freq_low and freq_high, 85 and 3,400 Hz, within its grid
# of whole samples; voices with overtones are harder.
# Seen: up to 330 Hz it does. Above, at 16 kHz, it gives a half, a third or a fifth: 440 is 219, 880 is 176, 1,000 is 333. At 44.1 kHz
# the same tone is 441, and 1,500 is 300. So a feature or a metric of pitch depends on the sample rate, and high voices and
# instruments are octaves lower. With freq_high=1000, 440 is 219 too.
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
import math

import torch
from torchaudio.functional import detect_pitch_frequency

for rate in (16000, 44100):
    seconds = torch.arange(rate) / rate
    found = {}
    for pitch in (110, 220, 330, 440, 880, 1000, 1500):
        tone = torch.sin(2 * math.pi * pitch * seconds)[None]
        voice = sum(torch.sin(2 * math.pi * pitch * part * seconds) / part for part in range(1, 6))[None]
        found[pitch] = tuple(round(detect_pitch_frequency(each, rate).median().item()) for each in (tone, voice))
    print(f"at {rate} Hz, tones and tones with overtones:", found)
tone = torch.sin(2 * math.pi * 440 * torch.arange(16000) / 16000)[None]
print("with freq_high=1000, 440 is", round(detect_pitch_frequency(tone, 16000, freq_high=1000).median().item()))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
at 16000 Hz, tones and tones with overtones: {110: (110, 110), 220: (219, 219), 330: (333, 333), 440: (219, 219), 880: (176, 176), 1000: (333, 333), 1500: (500, 250)}
at 44100 Hz, tones and tones with overtones: {110: (111, 110), 220: (219, 220), 330: (329, 329), 440: (441, 441), 880: (882, 882), 1000: (1002, 1002), 1500: (300, 300)}
with freq_high=1000, 440 is 219
SEEN
