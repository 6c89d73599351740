#!/usr/bin/env bash
# A schedule gives each parameter group the same rate. pytorch_optimizer 4.1.0, torch 2.13.0, CPU.
# Guess: a warm-up and a cosine, as torch's and transformers' schedules do, are factors of the rate of each group; so a rate
# for each layer, or a hundredth for a body that is fine-tuned, stays.
# Seen: CosineScheduler and LinearScheduler set each group to one number, from max_lr down, and forget what groups had. The
# body is trained at the rate of the head.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet pytorch_optimizer==4.1.0
cat > "$folder/tried.py" <<'CODE'
import torch
from pytorch_optimizer.lr_scheduler import CosineScheduler, LinearScheduler

for kind in (CosineScheduler, LinearScheduler):
    body, head = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    optimizer = torch.optim.AdamW([{"params": [body], "lr": 1e-5}, {"params": [head], "lr": 1e-3}])
    schedule = kind(optimizer, t_max=8, max_lr=1e-3, min_lr=0.0, init_lr=0.0, warmup_steps=2)
    for step in range(1, 7):
        optimizer.step()
        schedule.step()
        if step in (2, 4, 6):
            body_rate, head_rate = (group["lr"] for group in optimizer.param_groups)
            print(f"{kind.__name__}, step {step}: body {body_rate:.6f}, head {head_rate:.6f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
CosineScheduler, step 2: body 0.000500, head 0.000500
CosineScheduler, step 4: body 0.000933, head 0.000933
CosineScheduler, step 6: body 0.000500, head 0.000500
LinearScheduler, step 2: body 0.000500, head 0.000500
LinearScheduler, step 4: body 0.000833, head 0.000833
LinearScheduler, step 6: body 0.000500, head 0.000500
SEEN
