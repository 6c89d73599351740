#!/usr/bin/env bash
# A series is scaled as another one, by its place in the list. darts 0.48.1.
# Guess: a Scaler that was fitted on several series has one scale for all, or knows which series is which, or refuses fewer of them;
# a sum of two series adds what belongs to one time.
# Seen: it keeps one scale for each place in the list. The second series alone is scaled by the first one's scale, and so is a forecast
# of it that is scaled back; a shuffled or filtered list gives each the scale of a neighbour. Two series of one length that begin at other
# times are added place by place, at the times of the first one. `global_fit=True` has one scale.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet darts==0.48.1 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import logging

import numpy
import pandas
from darts import TimeSeries
from darts.dataprocessing.transformers import Scaler

logging.disable(logging.CRITICAL)

def series(*values, start=0):
    times = pandas.RangeIndex(start, start + len(values))
    return TimeSeries.from_times_and_values(times, numpy.array(values, dtype=float))

small, large = series(1, 2, 3), series(100, 200, 300)
scaler = Scaler()
print("both:", [each.values().ravel().tolist() for each in scaler.fit_transform([small, large])])
print("the second alone:", scaler.transform([large])[0].values().ravel().tolist())
print("in another order:", [each.values().ravel().round(3).tolist() for each in scaler.transform([large, small])])
print("its forecast of 0.5 is scaled back to", scaler.inverse_transform([series(0.5)])[0].values().item())
total = series(1, 2, 3) + series(10, 20, 30, start=2)
print("a sum:", total.values().ravel().tolist(), "at the times", list(total.time_index))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
both: [[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]]
the second alone: [49.5, 99.5, 149.5]
in another order: [[49.5, 99.5, 149.5], [-0.495, -0.49, -0.485]]
its forecast of 0.5 is scaled back to 2.0
a sum: [11.0, 22.0, 33.0] at the times [0, 1, 2]
SEEN
