#!/usr/bin/env bash
# Gradients of two steps of a pipeline are not the sum of the two. torch 2.13.0, gloo, 2 ranks.
# Guess: schedule.step adds the mean over its micro-batches to what is in .grad, as backward() does, so that two steps between
# zero_grad() accumulate.
# Seen: with scale_grads=True, the default, each step divides all that is in .grad by the number of micro-batches, the
# gradients of the steps before too. With 4 of them, the first of three steps counts a sixteenth, and the last one whole.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

dist.init_process_group("gloo")
rank = dist.get_rank()
for kind in (ScheduleGPipe, Schedule1F1B):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    inputs, targets = torch.randn(8, 2), torch.randn(8, 1)
    nn.functional.mse_loss(layers(inputs), targets).backward()
    right = layers[rank].weight.grad.clone()
    layers.zero_grad()
    stage = PipelineStage(layers[rank], rank, 2, torch.device("cpu"))
    schedule = kind(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    seen = []
    for _ in range(3):
        schedule.step(inputs) if rank == 0 else schedule.step(target=targets)
        seen.append(round((layers[rank].weight.grad / right).mean().item(), 4))
    if rank == 0:
        print(f"{kind.__name__}: after 1, 2 and 3 steps, the gradient is {seen} times that of one")
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/torchrun" --nproc-per-node=2 "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
ScheduleGPipe: after 1, 2 and 3 steps, the gradient is [1.0, 1.25, 1.3125] times that of one
Schedule1F1B: after 1, 2 and 3 steps, the gradient is [1.0, 1.25, 1.3125] times that of one
SEEN
