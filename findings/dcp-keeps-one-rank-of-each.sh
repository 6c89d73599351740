#!/usr/bin/env bash
# A checkpoint of two ranks holds a part of each. torch 2.13.0, gloo, 2 ranks.
# Guess: for a name that all ranks have, dcp.save keeps what each gives it, such as its generator's state, or rank 0's.
# Seen: what is no DTensor is kept once, tensors of one rank and other objects of another one. Loaded, all ranks draw the
# numbers of rank 0, beside the count of rank 1. A name for each rank, f"rng{rank}", keeps all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

dist.init_process_group("gloo")
rank = dist.get_rank()
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder, 0)
torch.manual_seed(rank)
dcp.save({"rng": torch.tensor([rank]), "count": rank}, checkpoint_id=folder[0])
loaded = {"rng": torch.tensor([-1]), "count": -1}
dcp.load(loaded, checkpoint_id=folder[0])
seen = [None, None]
dist.all_gather_object(seen, (loaded["rng"].item(), loaded["count"]))
if rank == 0:
    print("ranks 0 and 1 gave 0 and 1")
    for number, (rng, count) in enumerate(seen):
        print(f"rank {number} has the tensor of rank {rng} and the number of rank {count}")
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/torchrun" --nproc-per-node=2 "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
ranks 0 and 1 gave 0 and 1
rank 0 has the tensor of rank 0 and the number of rank 1
rank 1 has the tensor of rank 0 and the number of rank 1
SEEN
