"""mosaicml-streaming: shards that are written once and streamed."""

import streaming
import torch
from crossing import digits, exact, told, trained_on


def stream(folder):
    local = f"{folder.parent}/shards of {folder.name}"
    if not (folder / "checkpoints").exists():
        columns = {"features": "ndarray", "label": "int"}
        with streaming.MDSWriter(out=local, columns=columns, size_limit=400) as writer:
            for features, label in digits():
                writer.write({"features": features.numpy(), "label": label.item()})
    streaming.base.util.clean_stale_shared_memory()  # what the killed process has left
    options = {"shuffle": True, "shuffle_seed": 0, "num_canonical_nodes": 1}
    return streaming.StreamingDataset(local=local, batch_size=4, **options)


def pairs(rows):
    features = torch.stack([torch.tensor(row["features"]) for row in rows])
    return features, torch.tensor([row["label"] for row in rows])


@exact("mosaicml-streaming", "Data", "engine.run(StreamingDataLoader(data, batch_size=4))")
def test_loader(folder):
    """A StreamingDataLoader over a StreamingDataset that shuffles."""
    data = stream(folder)
    return trained_on(streaming.StreamingDataLoader(data, batch_size=4, collate_fn=pairs))


@told(
    "mosaicml-streaming",
    "Data",
    "engine.run(StreamingDataLoader(data, batch_size=4))",
    match="gives something else",
)
def test_plain_loader(folder):
    """A plain DataLoader over a StreamingDataset that shuffles."""
    return trained_on(torch.utils.data.DataLoader(stream(folder), 4, collate_fn=pairs))
