#!/usr/bin/env bash
# A load of a fresh optimizer loads no moments. torch 2.13.0.
# Guess: distributed.checkpoint.load gives what was saved, or names what the script does not have, as load_state_dict
# does.
# Seen: it fills what the new state holds. Adam before its first step holds none, so its state stays empty and the run
# goes on from zero moments; entries that a dict lacks are left out, and 1.5 is loaded into whole numbers as 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import sys

import torch
import torch.distributed.checkpoint as dcp

layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam(layer.parameters())
layer(torch.ones(1, 2)).sum().backward()
optimizer.step()
saved = {"optimizer": optimizer.state_dict(), "seen": {"a": 1, "b": 2}, "mean": torch.tensor([1.5, 2.5])}
dcp.save(saved, checkpoint_id=f"{sys.argv[1]}/saved")
fresh = torch.optim.Adam(torch.nn.Linear(2, 2).parameters())
found = {"optimizer": fresh.state_dict(), "seen": {"a": 0}, "mean": torch.zeros(2, dtype=torch.int64)}
dcp.load(found, checkpoint_id=f"{sys.argv[1]}/saved")
fresh.load_state_dict(found["optimizer"])
print("moments:", len(optimizer.state), "saved,", len(fresh.state), "loaded")
print("seen:", found["seen"], "mean:", found["mean"].tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
moments: 2 saved, 0 loaded
seen: {'a': 1} mean: [1, 2]
SEEN
