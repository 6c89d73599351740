#!/usr/bin/env bash
# The same error costs six decibels more in an image without a value below zero. scikit-image 0.26.0, numpy 2.4.6.
# Guess: for floats, peak_signal_noise_ratio takes one range for all images, 1 or 2, or asks for it.
# Seen: it takes 2 if the true image has a negative pixel, and else 1. Among images in [-1, 1], as many networks give them, a
# bright one has another scale: a mean over them depends on which have one dark pixel. With `data_range=2` all have one scale.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet numpy==2.4.6 scikit-image==0.26.0
cat > "$folder/tried.py" <<'CODE'
import numpy
from skimage.metrics import peak_signal_noise_ratio

dark = numpy.linspace(-1, 0.8, 64).reshape(8, 8)
bright = numpy.linspace(0.01, 0.8, 64).reshape(8, 8)
one_dark_pixel = bright.copy()
one_dark_pixel[0, 0] = -0.01
for name, image in {"dark": dark, "bright": bright, "bright, with one pixel of -0.01": one_dark_pixel}.items():
    by_default = peak_signal_noise_ratio(image, image + 0.1)
    print(f"{name}: {by_default:.1f} dB, with a range {peak_signal_noise_ratio(image, image + 0.1, data_range=2):.1f} dB")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
dark: 26.0 dB, with a range 26.0 dB
bright: 20.0 dB, with a range 26.0 dB
bright, with one pixel of -0.01: 26.0 dB, with a range 26.0 dB
SEEN
