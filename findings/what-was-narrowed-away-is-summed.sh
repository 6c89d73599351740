#!/usr/bin/env bash
# A sum over texts that were narrowed counts their padding, too. torch 2.13.0, CPU.
# Guess: torch.nested.narrow makes a ragged tensor of the first words of each row: its sum, mean and maximum are those of these words,
# as they are if the same rows are given as a list.
# Seen: it keeps the padded tensor and the lengths, and sum(), mean() and max() without a dimension read the whole of it. A loss
# for each word, padded with anything, has a mean over the padding as well, and its gradient goes there. Over the words of each
# row it is an error. `.contiguous()` takes the words alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

padded = torch.tensor([[1.0, 2.0, 100.0, 100.0], [3.0, 4.0, 5.0, 100.0]], requires_grad=True)
lengths = torch.tensor([2, 3])
zeros = torch.zeros(2, dtype=torch.int64)
narrowed = torch.nested.narrow(padded, 1, zeros, lengths, layout=torch.jagged)
listed = torch.nested.nested_tensor([[1.0, 2.0], [3.0, 4.0, 5.0]], layout=torch.jagged)
print("rows:", [row.tolist() for row in narrowed.unbind()], "and", [row.tolist() for row in listed.unbind()])
for name, words in (("narrowed", narrowed), ("listed", listed), ("narrowed, contiguous", narrowed.contiguous())):
    print(f"{name}: sum {words.sum().item():.0f}, mean {words.mean().item():.1f}, max {words.max().item():.0f}", end=", ")
    print(f"sum of twice of it {(2 * words).sum().item():.0f}")
narrowed.mean().backward()
print("gradient of the mean:", padded.grad.tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
rows: [[1.0, 2.0], [3.0, 4.0, 5.0]] and [[1.0, 2.0], [3.0, 4.0, 5.0]]
narrowed: sum 315, mean 39.4, max 100, sum of twice of it 630
listed: sum 15, mean 3.0, max 5, sum of twice of it 30
narrowed, contiguous: sum 15, mean 3.0, max 5, sum of twice of it 30
gradient of the mean: [[0.20000000298023224, 0.20000000298023224, 0.20000000298023224, 0.20000000298023224], [0.20000000298023224, 0.20000000298023224, 0.20000000298023224, 0.20000000298023224]]
SEEN
