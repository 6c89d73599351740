#!/usr/bin/env bash
# A score that rises at each validation is stopped. pytorch-ignite 0.5.5.
# Guess: EarlyStopping(min_delta=0.5) compares with the best score that counted, as Keras and Lightning do.
# Seen: each better score becomes the one to beat, though it does not count. So a rise of 0.3 each time, of 0.9 in three,
# never counts, and a run with patience=3 ends at the fourth validation. With cumulative_delta=True it goes on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 pytorch-ignite==0.5.5
cat > "$folder/tried.py" <<'CODE'
from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping

def validations(**options):
    trainer, evaluator = Engine(lambda engine, batch: None), Engine(lambda engine, score: score)
    stop = EarlyStopping(3, lambda engine: engine.state.output, trainer, min_delta=0.5, **options)
    evaluator.add_event_handler(Events.COMPLETED, stop)
    seen = []

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate():
        seen.append(round(0.3 * trainer.state.epoch, 1))
        evaluator.run([seen[-1]])

    trainer.run([0], max_epochs=20)
    return seen

print("default:", validations())
print("cumulative_delta=True:", len(validations(cumulative_delta=True)), "validations")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
default: [0.3, 0.6, 0.9, 1.2]
cumulative_delta=True: 20 validations
SEEN
