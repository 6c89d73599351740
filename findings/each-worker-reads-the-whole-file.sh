#!/usr/bin/env bash
# With two workers, each sample of an epoch comes twice. tfrecord 1.14.6, torch 2.13.0, CPU.
# Guess: TFRecordDataset splits a file over the workers of a DataLoader, as its own code asks get_worker_info() which of them it is.
# Seen: it splits by the index file alone. Without one, which is an optional argument, each worker reads the whole file, so that an epoch
# is as many times as long as there are workers, and neighbouring batches hold the same samples. With an index each comes once.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet tfrecord==1.14.6
cat > "$folder/tried.py" <<'CODE'
import sys
from pathlib import Path

import torch
from tfrecord import TFRecordWriter
from tfrecord.tools.tfrecord2idx import create_index
from tfrecord.torch.dataset import TFRecordDataset

records, index = str(Path(sys.argv[1]) / "rows.tfrecord"), str(Path(sys.argv[1]) / "rows.index")
writer = TFRecordWriter(records)
for number in range(6):
    writer.write({"number": (number, "int")})
writer.close()
create_index(records, index)
for name, given in (("without an index", None), ("with an index", index)):
    for workers in (0, 2, 4):
        data = TFRecordDataset(records, given, {"number": "int"})
        loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=workers)
        print(f"{name}, {workers} workers: {sorted(int(row['number']) for row in loader)}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
without an index, 0 workers: [0, 1, 2, 3, 4, 5]
without an index, 2 workers: [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
without an index, 4 workers: [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5]
with an index, 0 workers: [0, 1, 2, 3, 4, 5]
with an index, 2 workers: [0, 1, 2, 3, 4, 5]
with an index, 4 workers: [0, 1, 2, 3, 4, 5]
SEEN
