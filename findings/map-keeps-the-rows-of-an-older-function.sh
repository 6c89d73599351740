#!/usr/bin/env bash
# A function that was changed is not called again. datasets 5.2.0.
# Guess: `map` saves its rows under a hash of the function, and so a changed function makes new rows.
# Seen: so it is for a function of the script itself. One that is imported, also by a lambda of the script, is hashed by its name
# alone: after `prepare.py` was changed, the next run has the rows that its older text made, without a word. So it is in `filter`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet datasets==5.2.0
cat > "$folder/tried.py" <<'CODE'
import os
import pathlib
import subprocess
import sys
import tempfile

os.chdir(tempfile.mkdtemp())
pathlib.Path("rows.jsonl").write_text('{"x": 1}\n{"x": 2}\n{"x": 3}\n')
SCRIPT = """
import datasets
import prepare

datasets.disable_progress_bars()
rows = datasets.load_dataset("json", data_files="rows.jsonl", split="train")

def here(row):
    return {"x": row["x"] * FACTOR}

print("  a function of the script:", rows.map(here)["x"][:])
print("  an imported function:", rows.map(prepare.scale)["x"][:])
print("  a lambda that calls it:", rows.map(lambda row: prepare.scale(row))["x"][:])
print("  a filter by it:", len(rows.filter(lambda row: prepare.scale(row)["x"] > 15)))
"""
for factor in (10, 100):
    pathlib.Path("prepare.py").write_text(f"def scale(row):\n    return {{'x': row['x'] * {factor}}}\n")
    pathlib.Path("train.py").write_text(SCRIPT.replace("FACTOR", str(factor)))
    surroundings = {**os.environ, "HF_HOME": os.path.abspath("cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    print(f"both functions multiply by {factor}", flush=True)
    subprocess.run([sys.executable, "train.py"], env=surroundings, check=True)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
both functions multiply by 10
  a function of the script: [10, 20, 30]
  an imported function: [10, 20, 30]
  a lambda that calls it: [10, 20, 30]
  a filter by it: 2
both functions multiply by 100
  a function of the script: [100, 200, 300]
  an imported function: [10, 20, 30]
  a lambda that calls it: [10, 20, 30]
  a filter by it: 2
SEEN
