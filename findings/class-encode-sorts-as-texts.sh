#!/usr/bin/env bash
# Labels 0 to 11 become other labels. datasets 5.2.0.
# Guess: class_encode_column, which train_test_split(stratify_by_column=...) asks for, keeps whole numbers as they are,
# or numbers them in their order.
# Seen: the values are sorted as texts, 0, 1, 10, 11, 2, ...: from 10 classes on, label 2 becomes 4 and 10 becomes 2. A
# data set that has other classes, such as a test set without class 10, gets other numbers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet datasets==5.2.0
cat > "$folder/tried.py" <<'CODE'
import os

os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
from datasets import Dataset

labels = list(range(12))
train = Dataset.from_dict({"label": labels}).class_encode_column("label")
test = Dataset.from_dict({"label": labels[:10] + labels[11:]}).class_encode_column("label")
print("label   ", labels)
print("training", train["label"][:])
print("test    ", test["label"][:], "of", [*labels[:10], 11])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
label    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
training [0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3]
test     [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 2] of [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11]
SEEN
