"""deeplake: tables of tensors in a folder or a store."""

import numpy as np
import torch
from crossing import exact, trained_on


@exact("deeplake", "Data", "DataLoader(table.pytorch(), batch_size=4, shuffle=True)")
def test_table(folder):
    """The data set of a table, by index."""
    import deeplake

    path = f"{folder}/table"
    if (folder / "table").exists():
        table = deeplake.open_read_only(path)
    else:
        features = np.random.default_rng(5).normal(size=(44, 8)).astype("float32")
        table = deeplake.create(path)
        table.add_column("features", deeplake.types.Array("float32", shape=[8]))
        table.add_column("label", "int64")
        table.append({"features": list(features), "label": list(features[:, :4].argmax(1))})
        table.commit()

    def pairs(rows):
        features = torch.tensor(np.stack([row["features"] for row in rows]))
        return features, torch.tensor([int(row["label"]) for row in rows])

    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(table.pytorch(), 4, shuffle=True, collate_fn=pairs)
    return trained_on(loader)
