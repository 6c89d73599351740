#!/usr/bin/env bash
# A collective of a column works on the row beside it. torch 2.13.0, gloo, 2 ranks.
# Guess: a view with strides is copied before and after, or refused, as NCCL refuses it: "Tensors must be contiguous".
# Seen: all_reduce and broadcast count elements and take as many as lie side by side from the first one on. The sum of
# column 0 of a matrix is that of its first row, which is changed in place, while most of the column stays. And if the
# memory of one rank is transposed, the sum of equal matrices adds elements of different places.
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
totals = torch.arange(9.0).reshape(3, 3)
dist.all_reduce(totals[:, 0])
if rank == 0:
    print("sum of column 0, which was 0, 3, 6 on both ranks:", totals[:, 0].tolist())
    print("row 0, which was 0, 1, 2:", totals[0].tolist())
state = torch.arange(9.0).reshape(3, 3) * (1 - rank)
dist.broadcast(state[:, 0], src=0)
if rank == 1:
    print("column 0 of rank 0, 0, 3, 6, on rank 1:", state[:, 0].tolist())
    print("row 0 of rank 1, which was 0, 0, 0:", state[0].tolist())
whole = torch.arange(9.0).reshape(3, 3)[:, 0].contiguous()
dist.all_reduce(whole)
if rank == 0:
    print("sum of a contiguous copy:", whole.tolist())
equal = torch.arange(4.0).reshape(2, 2)
equal = equal.t().contiguous().t() if rank == 1 else equal
dist.all_reduce(equal)
if rank == 0:
    print("sum of two times 0, 1, 2, 3:", equal.flatten().tolist())
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/torchrun" --nproc-per-node=2 "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
sum of column 0, which was 0, 3, 6 on both ranks: [0.0, 3.0, 6.0]
row 0, which was 0, 1, 2: [0.0, 2.0, 4.0]
column 0 of rank 0, 0, 3, 6, on rank 1: [0.0, 0.0, 0.0]
row 0 of rank 1, which was 0, 0, 0: [0.0, 1.0, 2.0]
sum of a contiguous copy: [0.0, 6.0, 12.0]
sum of two times 0, 1, 2, 3: [0.0, 3.0, 3.0, 6.0]
SEEN
