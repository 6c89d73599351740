#!/usr/bin/env bash
# A model that says nothing has an SI-SDR of 0 decibels, better than half of speech and half of noise. torchmetrics 1.9.0,
# torch 2.13.0, CPU.
# Guess: the SI-SDR of silence is minus infinity, or as low as the epsilon lets it be.
# Seen: the same epsilon stands above and below, so that 0 / 0 is 1, and 0 decibels. A separation model that has collapsed to
# silence, or to nearly silence, ranks above one whose output is the target with noise of its strength, and far above noise
# itself. SI-SNR takes any constant for silence. signal_distortion_ratio is minus infinity.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torchmetrics.functional.audio import (
    scale_invariant_signal_distortion_ratio,
    scale_invariant_signal_noise_ratio,
    signal_distortion_ratio,
)

torch.manual_seed(0)
target, noise = torch.randn(1, 16000), torch.randn(1, 16000)
for name, estimate in {
    "silence": torch.zeros(1, 16000),
    "noise times 1e-8": 1e-8 * noise,
    "a constant of 1": torch.ones(1, 16000),
    "target + 1.1 * noise": target + 1.1 * noise,
    "noise": noise,
}.items():
    measured = [
        scale_invariant_signal_distortion_ratio(estimate, target),
        scale_invariant_signal_noise_ratio(estimate, target),
        signal_distortion_ratio(estimate, target),
    ]
    si_sdr, si_snr, sdr = (f"{each.item():.0f}".replace("-0", "0") for each in measured)
    print(f"{name}: SI-SDR {si_sdr}, SI-SNR {si_snr}, SDR {sdr}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
silence: SI-SDR 0, SI-SNR 0, SDR -inf
noise times 1e-8: SI-SDR 0, SI-SNR 0, SDR -15
a constant of 1: SI-SDR -42, SI-SNR 0, SDR -14
target + 1.1 * noise: SI-SDR -1, SI-SNR -1, SDR -1
noise: SI-SDR -40, SI-SNR -40, SDR -15
SEEN
