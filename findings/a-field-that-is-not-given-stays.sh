#!/usr/bin/env bash
# A field that new rows lack is the one of older rows in a replay buffer. torchrl 0.14.1, tensordict 0.14.3, torch 2.13.0.
# Guess: rows without a field that the buffer has are refused, as rows of another type are, or the field is 0.
# Seen: the new rows keep what lay in their place: the field of the rows that they replace, or memory that nothing has written
# yet. A weight, a mask or a log-probability that a second collector does not give belongs to another transition.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet tensordict==0.14.3 torchrl==0.14.1
cat > "$folder/tried.py" <<'CODE'
import logging

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

logging.getLogger("torchrl").setLevel(logging.ERROR)

buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(4), batch_size=4)
buffer.extend(TensorDict({"reward": torch.arange(4.0), "weight": torch.arange(4.0)}, [4]))
buffer.extend(TensorDict({"reward": torch.tensor([100.0, 101.0])}, [2]))
for row in buffer[:]:
    print(f"reward {row['reward'].item():.0f}, weight {row['weight'].item():.0f}")
try:
    buffer.extend(TensorDict({"reward": torch.tensor([1, 2]), "weight": torch.ones(2)}, [2]))
except RuntimeError:
    print("rows of another type are refused")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
reward 100, weight 0
reward 101, weight 1
reward 2, weight 2
reward 3, weight 3
rows of another type are refused
SEEN
