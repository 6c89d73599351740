#!/usr/bin/env bash
# Masks of SpecAugment are the loudest part of a spectrogram in decibels, or are as loud as the other recordings. torchaudio
# 2.11.1, torch 2.13.0, CPU.
# Guess: FrequencyMasking and TimeMasking hide a band, as silence or as the mean of the recording.
# Seen: they write 0, which is the greatest value in decibels below full scale; in a Sequential, no other value can be given.
# SpecAugment(zero_masking=False) writes the mean of the whole batch, padding included: in a quiet recording, masks stand out
# as bright bands whose level tells what else is in the batch.
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
from torchaudio.transforms import AmplitudeToDB, FrequencyMasking, SpecAugment, TimeMasking

quiet, loud = torch.full((1, 40, 200), 1e-6), torch.full((1, 40, 200), 1.0)
decibels = AmplitudeToDB()
torch.manual_seed(0)
masked = torch.nn.Sequential(decibels, FrequencyMasking(20), TimeMasking(60))(quiet)
print("a recording of -60 dB, masked:", sorted(set(masked.flatten().tolist())))
augment = SpecAugment(1, 60, 1, 20, iid_masks=True, zero_masking=False)
for name, batch in {"beside itself": [quiet, quiet], "beside a loud one": [quiet, loud]}.items():
    torch.manual_seed(0)
    seen = augment(torch.stack([decibels(each) for each in batch]))[0]
    print(f"SpecAugment(zero_masking=False) {name}:", sorted({round(each) for each in seen.flatten().tolist()}))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
a recording of -60 dB, masked: [-60.0, 0.0]
SpecAugment(zero_masking=False) beside itself: [-60]
SpecAugment(zero_masking=False) beside a loud one: [-60, -30]
SEEN
