#!/usr/bin/env bash
# A data set from a generator keeps what the generator once gave. datasets 5.2.0.
# Guess: Dataset.from_generator runs the generator, or sees that the file that it reads has changed, as load_dataset does.
# Seen: it is kept under a hash of the function and its arguments. The next run of the script, with other rows in the
# file, trains on the old ones. A file that is named to load_dataset is looked at again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet datasets==5.2.0
cat > "$folder/tried.py" <<'CODE'
import logging
import os
import sys

os.environ["HF_HOME"] = f"{sys.argv[1]}/home"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
from datasets import Dataset, load_dataset

logging.disable()
path = f"{sys.argv[1]}/rows.csv"


def rows(path):
    with open(path) as file:
        for line in [*file][1:]:
            yield {"x": int(line)}


for text in ("x\n1\n2\n", "x\n10\n20\n30\n"):
    with open(path, "w") as file:
        file.write(text)
    made = Dataset.from_generator(rows, gen_kwargs={"path": path})
    loaded = load_dataset("csv", data_files=path, split="train")
    print("from_generator", made["x"][:], "load_dataset", loaded["x"][:])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
from_generator [1, 2] load_dataset [1, 2]
from_generator [1, 2] load_dataset [10, 20, 30]
SEEN
