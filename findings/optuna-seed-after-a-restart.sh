#!/usr/bin/env bash
# A sweep that is started again tries the same points again. optuna 5.0.0.
# Guess: a study in a storage goes on where it was, also with a seeded sampler.
# Seen: the sampler begins at its seed in each process: the first trials after a restart repeat the first
# trials of the study, values included, without a word. The study has them twice.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet optuna==5.0.0
cat > "$folder/tried.py" <<'CODE'
import os
import tempfile
import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
storage = "sqlite:///" + os.path.join(tempfile.mkdtemp(), "study.db")
for _ in range(2):
    sampler = optuna.samplers.TPESampler(seed=0)
    study = optuna.create_study(
        sampler=sampler, storage=storage, study_name="tried", load_if_exists=True
    )
    study.optimize(lambda trial: trial.suggest_float("rate", 0, 1), n_trials=3)
print([round(trial.params["rate"], 3) for trial in study.trials])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
[0.549, 0.715, 0.603, 0.549, 0.715, 0.603]
SEEN
