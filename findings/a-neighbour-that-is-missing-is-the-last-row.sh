#!/usr/bin/env bash
# A neighbour that was not found has the label of the last row. faiss-cpu 1.15.1, numpy 2.4.6.
# Guess: search(queries, k) gives k neighbours of each query, or fewer, or refuses; an index of cells looks into more of them until it
# has k.
# Seen: an IVF index looks into one cell, and fills up with the number -1, with which an array gives its last row: a vote of neighbours
# counts the last sample of the data set as often as neighbours are missing, and so does whatever is looked up by it. So does a flat
# index that has fewer rows than k. The distances there are 3.4e38. `nprobe` of all cells finds all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet numpy==2.4.6 faiss-cpu==1.15.1
cat > "$folder/tried.py" <<'CODE'
import faiss
import numpy

generator = numpy.random.default_rng(0)
labels = numpy.sort(generator.integers(0, 3, 2000))
rows = (generator.standard_normal((2000, 16)) + 2 * numpy.eye(3, 16)[labels]).astype("float32")
queries = (generator.standard_normal((500, 16)) + 2 * numpy.eye(3, 16)[0]).astype("float32")
cells = faiss.IndexIVFFlat(faiss.IndexFlatL2(16), 16, 50)
cells.train(rows)
cells.add(rows)
for probes in (1, 50):
    cells.nprobe = probes
    distances, found = cells.search(queries, 100)
    voted = numpy.array([numpy.bincount(each, minlength=3).argmax() for each in labels[found]])
    print(f"{probes} of 50 cells: {(found == -1).mean():.1f} of all missing,", end=" ")
    print(f"queries of class 0 are voted {[round(float((voted == each).mean()), 1) for each in range(3)]}")
flat = faiss.IndexFlatL2(16)
flat.add(rows[:3])
print("five of three rows:", flat.search(rows[:1], 5)[1][0].tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
1 of 50 cells: 0.6 of all missing, queries of class 0 are voted [0.0, 0.0, 1.0]
50 of 50 cells: 0.0 of all missing, queries of class 0 are voted [0.9, 0.1, 0.1]
five of three rows: [0, 2, 1, -1, -1]
SEEN
