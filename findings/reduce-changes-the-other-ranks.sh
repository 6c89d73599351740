#!/usr/bin/env bash
# A sum for rank 0 changes the values of other ranks, each in another way. torch 2.13.0, gloo, 4 ranks.
# Guess: dist.reduce(loss, dst=0) gives rank 0 the sum, and the others keep their own value, or get the sum as well.
# Seen: rank 3 keeps its own, ranks 1 and 2 are left with sums of some ranks. What a rank decides by its own loss after
# it was logged, such as to skip a step, is decided by another number. loss.detach() is the same memory.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
loss = torch.tensor(10.0**rank)
dist.reduce(loss.detach(), dst=0)
for each in range(4):
    dist.barrier()
    if rank == each:
        print(f"rank {rank}: {10.0**rank} -> {loss.item()}", flush=True)
dist.barrier()
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/torchrun" --nproc-per-node=4 "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
rank 0: 1.0 -> 1111.0
rank 1: 10.0 -> 1110.0
rank 2: 100.0 -> 1100.0
rank 3: 1000.0 -> 1000.0
SEEN
