#!/usr/bin/env bash
# A seed does not fix the order of resampled shards. webdataset 1.0.2, torch 2.13.0.
# Guess: WebDataset(urls, resampled=True, seed=3) draws the same shards each time, as shardshuffle= with a seed does.
# Seen: two data sets with one seed draw other shards, since the time and the process are a part of the seed; and so does
# .shuffle(n). ResampledShards(urls, seed=3, deterministic=True) and .shuffle(n, rng=random.Random(3)) are fixed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet webdataset==1.0.2 numpy
cat > "$folder/tried.py" <<'CODE'
import random, sys
from itertools import islice

import webdataset as wds

urls = [f"{sys.argv[1]}/{number}.tar" for number in range(20)]
for number, url in enumerate(urls):
    with wds.TarWriter(url) as tar:
        tar.write({"__key__": f"{number}", "cls": number})

def first(pipeline):
    return [one for one, in islice(pipeline.decode().to_tuple("cls"), 20)]

def drawn(make):
    return first(make()) == first(make())

def fixed():
    return wds.DataPipeline(
        wds.ResampledShards(urls, seed=3, deterministic=True), wds.tarfile_to_samples(),
        wds.decode(), wds.to_tuple("cls"),
    )

def plain(**options):
    return wds.WebDataset(urls, **{"shardshuffle": False, **options})

print("shardshuffle=20, seed=3:", drawn(lambda: plain(shardshuffle=20, seed=3)))
print("resampled=True, seed=3:", drawn(lambda: plain(resampled=True, seed=3)))
print("deterministic=True:", [*islice(fixed(), 20)] == [*islice(fixed(), 20)])
print("seed=3, .shuffle(20):", drawn(lambda: plain(seed=3).shuffle(20)))
print(".shuffle(20, rng=):", drawn(lambda: plain().shuffle(20, rng=random.Random(3))))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
shardshuffle=20, seed=3: True
resampled=True, seed=3: False
deterministic=True: True
seed=3, .shuffle(20): False
.shuffle(20, rng=): True
SEEN
