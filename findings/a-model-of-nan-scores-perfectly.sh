#!/usr/bin/env bash
# Predictions of NaN do not count, so a model that fails scores perfectly. torchmetrics 1.9.0, torch 2.13.0, CPU.
# Guess: MultioutputWrapper gives the metric of each output by itself, so NaN in an output makes its metric NaN, as
# without the wrapper; remove_nans=True, the default, is about missing targets.
# Seen: rows where the prediction is NaN are left out as well, without a word: a mean squared error of 0 for an output
# that is NaN wherever it would be wrong.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torchmetrics import MeanSquaredError
from torchmetrics.wrappers import MultioutputWrapper

nan = float("nan")
predictions = torch.tensor([[1.0, 5.0], [nan, 5.0], [nan, nan]])
targets = torch.tensor([[1.0, 5.0], [7.0, 5.0], [8.0, 9.0]])
print("each alone", [MeanSquaredError()(predictions[:, i], targets[:, i]).item() for i in range(2)])
print("num_outputs=2", MeanSquaredError(num_outputs=2)(predictions, targets).tolist())
print("wrapper", MultioutputWrapper(MeanSquaredError(), 2)(predictions, targets).tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
each alone [nan, nan]
num_outputs=2 [nan, nan]
wrapper [0.0, 0.0]
SEEN
