#!/usr/bin/env bash
# A smoothed loss is infinite where its gradient is right. torch 2.13.0, CPU.
# Guess: in float16, cross_entropy with `label_smoothing=` is a mean as without, and does not depend on the number of samples.
# Seen: the part of the smoothing is summed over all samples and classes before it is divided: from 2,500 samples of 10 classes
# on it is infinite. The gradients are right, so a guard that looks at the loss skips good steps. bfloat16 has no such bound.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.nn.functional as F

torch.manual_seed(0)
scores, labels = torch.randn(20_000, 10), torch.randint(10, (20_000,))
for number in (500, 5_000, 20_000):
    exact = scores[:number].clone().requires_grad_()
    F.cross_entropy(exact, labels[:number], label_smoothing=0.1).backward()
    for smoothing in (0.0, 0.1):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            leaf = scores[:number].to(dtype).requires_grad_()
            loss = F.cross_entropy(leaf, labels[:number], label_smoothing=smoothing)
            loss.backward()
            if smoothing:
                near = torch.allclose(leaf.grad.float() * number, exact.grad * number, atol=0.03)
                print(f"{number} samples, {str(dtype)[6:]}: loss {loss.item():.1f}, gradient {'right' if near else 'wrong'}")
            elif not loss.isfinite():
                print("without smoothing:", loss.item())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
500 samples, float32: loss 2.8, gradient right
500 samples, bfloat16: loss 2.8, gradient right
500 samples, float16: loss 2.8, gradient right
5000 samples, float32: loss 2.7, gradient right
5000 samples, bfloat16: loss 2.8, gradient right
5000 samples, float16: loss inf, gradient right
20000 samples, float32: loss 2.7, gradient right
20000 samples, bfloat16: loss 2.7, gradient right
20000 samples, float16: loss inf, gradient right
SEEN
