#!/usr/bin/env bash
# A metric that is infinite comes back as a finite number. mlflow-skinny 3.17.2, SQLite.
# Guess: inf stays inf as NaN stays NaN, or is refused.
# Seen: it is stored as the largest double, and history, charts and `metrics.x < ...` searches take it for a
# measured value.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet mlflow-skinny==3.17.2 sqlalchemy==2.1.9 alembic==1.20.1
cat > "$folder/tried.py" <<'CODE'
import logging
import math
import os
import tempfile
logging.disable(logging.CRITICAL)
from mlflow.tracking import MlflowClient

client = MlflowClient("sqlite:///" + os.path.join(tempfile.mkdtemp(), "runs.db"))
run = client.create_run(client.create_experiment("tried")).info.run_id
for step, value in enumerate([math.nan, math.inf, -math.inf, 1.5]):
    client.log_metric(run, "loss", value, step=step)
print([each.value for each in client.get_metric_history(run, "loss")])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
[nan, 1.7976931348623157e+308, -1.7976931348623157e+308, 1.5]
SEEN
