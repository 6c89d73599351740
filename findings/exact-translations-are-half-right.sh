#!/usr/bin/env bash
# A text that equals its reference has a chrF of 0.5, and an edit distance above 0. torchmetrics 1.9.0, sacrebleu 2.6.0.
# Guess: CHRFScore of exact copies is 1 as sacrebleu's is 100, and ExtendedEditDistance of exact copies is 0.
# Seen: CHRFScore counts each length of n-grams that a short text does not have as a miss: a word of three letters has 0.5.
# ExtendedEditDistance of a text with itself is 0.06, and falls with its length: a set of short texts is worse than one of
# long ones, all of them exact.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet torchmetrics==1.9.0 sacrebleu==2.6.0
cat > "$folder/tried.py" <<'CODE'
import sacrebleu
from torchmetrics.text import CHRFScore, ExtendedEditDistance

for text in ("cat", "hello", "the cat sat", "this is a longer sentence, in full."):
    print(
        f"{text!r} with itself: CHRFScore {CHRFScore()([text], [[text]]).item():.2f},",
        f"sacrebleu {sacrebleu.corpus_chrf([text], [[text]], word_order=2).score:.0f},",
        f"ExtendedEditDistance {ExtendedEditDistance()([text], [text]).item():.3f}",
    )
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
'cat' with itself: CHRFScore 0.50, sacrebleu 100, ExtendedEditDistance 0.057
'hello' with itself: CHRFScore 0.75, sacrebleu 100, ExtendedEditDistance 0.041
'the cat sat' with itself: CHRFScore 1.00, sacrebleu 100, ExtendedEditDistance 0.023
'this is a longer sentence, in full.' with itself: CHRFScore 1.00, sacrebleu 100, ExtendedEditDistance 0.008
SEEN
