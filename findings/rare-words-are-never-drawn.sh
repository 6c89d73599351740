#!/usr/bin/env bash
# Rare words behind a frequent one are never drawn. torch 2.13.0, CPU.
# Guess: torch.multinomial draws each word as often as its count says, up to chance.
# Seen: with replacement, it adds up the weights in their own type. In float32, a count below a 33-millionth of the sum
# before it is lost in rounding: words behind a very frequent one, as in a list sorted by counts, have a probability of 0,
# however many they are. In float64, as WeightedRandomSampler has it, each is drawn.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

counts = torch.full((200_001,), 16.0)  # many rare words, 3,200,016 in all
counts[0] = 2.0**29 * 1.5              # and a frequent one, as a padding or a background
for dtype in (torch.float32, torch.float64):
    torch.manual_seed(0)
    drawn = torch.multinomial(counts.to(dtype), 10_000_000, replacement=True)
    print(f"{dtype}: rare words are {(drawn > 0).sum().item()} of 10,000,000 draws")
print("expected:", round(10_000_000 * (counts[1:].double().sum() / counts.double().sum()).item()))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch.float32: rare words are 0 of 10,000,000 draws
torch.float64: rare words are 39808 of 10,000,000 draws
expected: 39579
SEEN
