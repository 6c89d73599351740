#!/usr/bin/env bash
# MAX and MIN over ranks keep a NaN of rank 0 and lose one of rank 1. torch 2.13.0, gloo, 2 ranks.
# Guess: NaN wins as in `torch.maximum`, or is ignored on all ranks alike.
# Seen: it depends on the rank that has it. A check "is a value NaN anywhere" by MAX passes on some ranks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, nan = dist.get_rank(), float("nan")
for name in ("MAX", "MIN"):
    values = torch.tensor([nan, 1.0] if rank == 0 else [1.0, nan])
    dist.all_reduce(values, op=getattr(dist.ReduceOp, name))
    if rank == 0:
        print(name, "NaN of rank 0, NaN of rank 1:", values.tolist())
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/torchrun" --nproc-per-node=2 "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
MAX NaN of rank 0, NaN of rank 1: [nan, 1.0]
MIN NaN of rank 0, NaN of rank 1: [nan, 1.0]
SEEN
