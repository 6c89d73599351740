#!/usr/bin/env bash
# Some losses of sharded tensors have a gradient that is as many times too large as there are ranks. torch 2.13.0, gloo, 2 ranks.
# Guess: a loss of two DTensors that are sharded over the samples is the loss of the whole tensors, and so is its gradient.
# Seen: so it is with l1_loss, and with the mean of the squares that is written out. mse_loss, huber_loss, smooth_l1_loss and
# binary_cross_entropy take the mean of the shards' means: the loss is right if all shards have one length, and another one if
# not; its gradient is the number of ranks times too large, and more where shards differ.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
for rows in (4, 5):
    scores, targets = torch.rand(rows, 3), torch.rand(rows, 3)
    for name, loss in {
        "squares by hand": lambda x, y: (x - y).square().mean(),
        "l1_loss": F.l1_loss,
        "mse_loss": F.mse_loss,
        "huber_loss": F.huber_loss,
        "binary_cross_entropy": F.binary_cross_entropy,
    }.items():
        whole = scores.clone().requires_grad_()
        loss(whole, targets).backward()
        shards = distribute_tensor(scores, mesh, [Shard(0)]).requires_grad_()
        of_shards = loss(shards, distribute_tensor(targets, mesh, [Shard(0)]))
        of_shards.backward()
        value = of_shards.full_tensor() / loss(scores, targets)
        times = shards.grad.full_tensor() / whole.grad
        if dist.get_rank() == 0:
            print(f"{rows} rows, {name}: loss times {value:.2f}, gradient times", [round(row, 2) for row in times[:, 0].tolist()])
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/torchrun" --nproc-per-node=2 "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
4 rows, squares by hand: loss times 1.00, gradient times [1.0, 1.0, 1.0, 1.0]
4 rows, l1_loss: loss times 1.00, gradient times [1.0, 1.0, 1.0, 1.0]
4 rows, mse_loss: loss times 1.00, gradient times [2.0, 2.0, 2.0, 2.0]
4 rows, huber_loss: loss times 1.00, gradient times [2.0, 2.0, 2.0, 2.0]
4 rows, binary_cross_entropy: loss times 1.00, gradient times [2.0, 2.0, 2.0, 2.0]
5 rows, squares by hand: loss times 1.00, gradient times [1.0, 1.0, 1.0, 1.0, 1.0]
5 rows, l1_loss: loss times 1.00, gradient times [1.0, 1.0, 1.0, 1.0, 1.0]
5 rows, mse_loss: loss times 1.05, gradient times [1.67, 1.67, 1.67, 2.5, 2.5]
5 rows, huber_loss: loss times 1.05, gradient times [1.67, 1.67, 1.67, 2.5, 2.5]
5 rows, binary_cross_entropy: loss times 1.02, gradient times [1.67, 1.67, 1.67, 2.5, 2.5]
SEEN
