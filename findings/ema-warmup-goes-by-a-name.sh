#!/usr/bin/env bash
# The warm-up of an average does nothing. pytorch-ignite 0.5.5, torch 2.13.0, CPU.
# Guess: EMAHandler(momentum=, momentum_warmup=, warmup_iters=) warms its momentum up under any name that it is attached by.
# Seen: the warm-up writes `ema_momentum` into the state, and the average reads `name`. With name="ema" it has the last
# momentum from the first iteration on. With the default name the warm-up works.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 pytorch-ignite==0.5.5
cat > "$folder/tried.py" <<'CODE'
import torch
from ignite.engine import Engine, Events
from ignite.handlers import EMAHandler

def averages(name):
    model = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(model.weight)
    handler = EMAHandler(model, momentum=0.1, momentum_warmup=0.5, warmup_iters=3)
    torch.nn.init.ones_(model.weight)
    engine = Engine(lambda engine, batch: None)
    handler.attach(engine, name=name)
    seen = []
    engine.on(Events.ITERATION_COMPLETED)(lambda: seen.append(round(handler.ema_model.weight.item(), 3)))
    engine.run(range(4))
    return seen

print("ema_momentum:", averages("ema_momentum"))
print("ema:", averages("ema"))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
ema_momentum: [0.5, 0.65, 0.685, 0.716]
ema: [0.1, 0.19, 0.271, 0.344]
SEEN
