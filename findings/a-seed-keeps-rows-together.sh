#!/usr/bin/env bash
# A shuffle without a seed tears the rows apart, and a sample of all rows is not shuffled. polars 2.1.0.
# Guess: with_columns(pl.all().shuffle()) shuffles columns each by itself, or rows as they are; a seed makes it repeatable,
# and sample(fraction=1.0) is a shuffle, as in pandas.
# Seen: without a seed, each column has its own order, so that labels belong to other rows; with one, all columns have the
# same order. sample(fraction=1.0, seed=0) gives the rows as they lie, sorted by class or not; a smaller fraction is in random
# order.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet polars==2.1.0
cat > "$folder/tried.py" <<'CODE'
import polars

rows = polars.DataFrame({"image": range(8), "label": range(8)})
polars.set_random_seed(0)
for name, shuffled in {
    "shuffle()": rows.with_columns(polars.all().shuffle()),
    "shuffle(seed=1)": rows.with_columns(polars.all().shuffle(seed=1)),
    "sample(fraction=1.0, seed=0)": rows.sample(fraction=1.0, seed=0),
    "sample(fraction=0.75, seed=0)": rows.sample(fraction=0.75, seed=0),
    "sample(fraction=1.0, shuffle=True, seed=0)": rows.sample(fraction=1.0, shuffle=True, seed=0),
}.items():
    together = (shuffled["image"] == shuffled["label"]).sum()
    print(f"{name}: {together} of {len(shuffled)} rows are together", end=", ")
    print("in their order" if shuffled["image"].is_sorted() else "in another order")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
shuffle(): 1 of 8 rows are together, in another order
shuffle(seed=1): 8 of 8 rows are together, in another order
sample(fraction=1.0, seed=0): 8 of 8 rows are together, in their order
sample(fraction=0.75, seed=0): 6 of 6 rows are together, in another order
sample(fraction=1.0, shuffle=True, seed=0): 8 of 8 rows are together, in another order
SEEN
