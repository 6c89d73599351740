"""tensordict: dictionaries of tensors with a common first size."""

import torch
from crossing import digits, exact, trained_on
from tensordict import TensorDict


@exact("tensordict", "Data", "DataLoader(tensordict, batch_size=4, collate_fn=lambda rows: rows)")
def test_memmap(folder):
    """A TensorDict in files, whose batches are read at once."""
    features, labels = digits().tensors
    data = TensorDict({"features": features, "label": labels}, [44]).memmap(f"{folder}/rows")
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(
        data, 4, shuffle=True, collate_fn=lambda rows: (rows["features"], rows["label"])
    )
    return trained_on(loader)
