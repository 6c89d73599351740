"""pylance: tables in the format of Lance."""

import lance
import numpy as np
import pyarrow as pa
import torch
from crossing import exact, trained_on
from lance.torch.data import LanceDataset, SafeLanceDataset


def table(folder):

    features = np.random.default_rng(5).normal(size=(44, 8)).astype("float32")
    fixed = pa.FixedSizeListArray.from_arrays(features.ravel(), 8)
    rows = pa.table({"features": fixed, "label": features[:, :4].argmax(1)})
    lance.write_dataset(rows, f"{folder}/rows.lance", max_rows_per_file=44, mode="overwrite")
    return f"{folder}/rows.lance"


def pairs(rows):
    return rows["features"], rows["label"]


@exact("pylance", "Data", "DataLoader(SafeLanceDataset(path), batch_size=4, shuffle=True)")
def test_rows(folder):
    """SafeLanceDataset, which gives rows by index."""

    def collate(rows):
        features = torch.tensor([row["features"] for row in rows])
        return features, torch.tensor([row["label"] for row in rows])

    torch.manual_seed(0)
    data = SafeLanceDataset(table(folder))
    return trained_on(torch.utils.data.DataLoader(data, 4, shuffle=True, collate_fn=collate))


@exact("pylance", "Data", "DataLoader(LanceDataset(path, batch_size=4), batch_size=None)")
def test_stream(folder):
    """LanceDataset, a stream of batches in their order."""
    data = LanceDataset(table(folder), batch_size=4, columns=["features", "label"])
    return trained_on(torch.utils.data.DataLoader(data, batch_size=None, collate_fn=pairs))
