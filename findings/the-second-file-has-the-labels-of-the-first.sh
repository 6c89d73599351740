#!/usr/bin/env bash
# Rows of a second Parquet file have the class names of the first. datasets 5.2.0.
# Guess: files that datasets has written hold their class names; two whose names come in another order are joined by name, or
# refused, as concatenate_datasets refuses them.
# Seen: load_dataset takes the names of the first file, and the numbers of all: cats of the second file are dogs, without a word,
# also in a stream. `cast` and `cast_column` keep the numbers as well, so that they rename each row.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet datasets==5.2.0
cat > "$folder/tried.py" <<'CODE'
import os
import tempfile
import datasets
from datasets import ClassLabel, Dataset, Features

datasets.disable_progress_bars()
os.chdir(tempfile.mkdtemp())
os.environ["HF_HOME"] = "cache"
first, second = (Features({"label": ClassLabel(names=names)}) for names in (["cat", "dog"], ["dog", "cat"]))
one = Dataset.from_dict({"label": ["cat", "cat", "dog"]}, features=first)
two = Dataset.from_dict({"label": ["cat", "cat", "dog"]}, features=second)
one.to_parquet("one.parquet")
two.to_parquet("two.parquet")

def names(rows):
    return [rows.features["label"].int2str(row["label"]) for row in rows]

try:
    print("concatenate_datasets:", names(datasets.concatenate_datasets([one, two])))
except ValueError:
    print("concatenate_datasets: an error")
for streaming in (False, True):
    files = ["one.parquet", "two.parquet"]
    rows = datasets.load_dataset("parquet", data_files=files, split="train", streaming=streaming, cache_dir="cache")
    print(f"load_dataset, streaming={streaming}:", names(rows))
print("the second file alone:", names(datasets.load_dataset("parquet", data_files="two.parquet", split="train", cache_dir="cache")))
print("cast:", names(one.cast(second)))
print("cast_column:", names(one.cast_column("label", second["label"])))
print("align_labels_with_mapping:", names(one.align_labels_with_mapping({"dog": 0, "cat": 1}, "label")))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
concatenate_datasets: an error
load_dataset, streaming=False: ['cat', 'cat', 'dog', 'dog', 'dog', 'cat']
load_dataset, streaming=True: ['cat', 'cat', 'dog', 'dog', 'dog', 'cat']
the second file alone: ['cat', 'cat', 'dog']
cast: ['dog', 'dog', 'cat']
cast_column: ['dog', 'dog', 'cat']
align_labels_with_mapping: ['cat', 'cat', 'dog']
SEEN
