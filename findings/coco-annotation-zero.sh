#!/usr/bin/env bash
# The annotation whose id is 0 is never found. pycocotools 2.0.11.
# Guess: ids are names; detections that equal the boxes give an average precision and recall of 1.
# Seen: the matching keeps the id of the box, and takes 0 for "none". So its detection counts as a false one and the box
# as missed: with ids from 0, as `enumerate` gives them, two perfect detections have a precision of 0.25.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet numpy==2.4.6 pycocotools==2.0.11
cat > "$folder/tried.py" <<'CODE'
import contextlib
import io

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

box = {"category_id": 1, "bbox": [10, 10, 20, 20]}
for first in (1, 0):
    boxes = [{"id": first + n, "image_id": n, "area": 400, "iscrowd": 0, **box} for n in range(2)]
    images = [{"id": n, "width": 100, "height": 100} for n in range(2)]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "x"}]}
        truth.createIndex()
        found = truth.loadRes([{"image_id": n, "score": 0.9, **box} for n in range(2)])
        judged = COCOeval(truth, found, "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    print(f"ids from {first}: precision {judged.stats[0]:.2f}, recall {judged.stats[8]:.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
ids from 1: precision 1.00, recall 1.00
ids from 0: precision 0.25, recall 0.50
SEEN
