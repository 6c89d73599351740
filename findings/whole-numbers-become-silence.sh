#!/usr/bin/env bash
# A recording of whole numbers is saved as silence. soundfile 0.14.0.
# Guess: `write` saves samples of int32 that fit into 16 bits, such as the sum of two tracks of int16, with these
# values, or refuses them.
# Seen: a sample of int32 counts as a fraction of 2**31, so that its upper half is written: 100, -20000 and 30000 become
# 0, -1 and 0. The other way, `read(dtype='int16')` of a file of floats cuts 0.5 to 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet soundfile==0.14.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import io

import numpy
import soundfile


def read_back(samples, dtype="int16", **options):
    file = io.BytesIO()
    soundfile.write(file, samples, 8000, format="WAV", **options)
    file.seek(0)
    return soundfile.read(file, dtype=dtype)[0].tolist()


track = numpy.array([50, -10000, 15000], dtype=numpy.int16)
print("int16", read_back(track + track))
print("a sum of int32", read_back(numpy.stack([track, track]).sum(0, dtype=numpy.int32)))
print("floats", read_back(numpy.array([0.5, -0.25, 0.9]), subtype="FLOAT"))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
int16 [100, -20000, 30000]
a sum of int32 [0, -1, 0]
floats [0, 0, 1]
SEEN
