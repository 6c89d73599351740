#!/usr/bin/env bash
# A loaded state draws another order if numbers are drawn before the first batch. torchdata 0.11.0, torch 2.13.0.
# Guess: StatefulDataLoader begins its order at iter(), so generators as they were at the beginning bring it back, and may be
# put forward behind iter(), to where the training had left them.
# Seen: so it is with shuffle=True. With torch's BatchSampler as batch_sampler=, the order is drawn when the first batch is
# asked for: from the generators of that time. Samples come twice, and others never.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet torchdata==0.11.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.utils.data import BatchSampler, RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

def shuffled():
    return StatefulDataLoader(range(20), 4, shuffle=True)

def batched():
    return StatefulDataLoader(range(20), batch_sampler=BatchSampler(RandomSampler(range(20)), 4, False))

for make in (shuffled, batched):
    torch.manual_seed(0)
    loader, seen = make(), []
    for batch in loader:
        seen += batch.tolist()
        torch.rand(1)  # the training
        if len(seen) == 8:
            state, left = loader.state_dict(), torch.get_rng_state()
            break
    again = make()
    again.load_state_dict(state)
    torch.manual_seed(0)  # as at the beginning of the pass
    batches = iter(again)
    torch.set_rng_state(left)
    seen += [index for batch in batches for index in batch.tolist()]
    print(make.__name__, "different samples:", "all" if len(set(seen)) == 20 else "fewer")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
shuffled different samples: all
batched different samples: fewer
SEEN
