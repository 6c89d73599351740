"""megatron-energon: tar files of one or more data sets, without an end."""

import pickle

import torch
from crossing import digits, exact, trained_on
from megatron.energon import WorkerConfig, get_savable_loader, get_train_dataset
from megatron.energon.flavors import BaseWebdatasetFactory
from webdataset import TarWriter


def prepared(folder):
    """What the command `energon prepare` makes."""
    if (folder / ".nv-meta").exists():
        return folder
    for shard in range(4):
        with TarWriter(f"{folder}/{shard}.tar") as tar:
            for i in range(shard, 44, 4):
                features, label = digits()[i]
                tar.write({"__key__": f"{i}", "pth": features, "cls": label.item()})
    names = [f"{shard}.tar" for shard in range(4)]
    parts = [("train", 1.0)]
    BaseWebdatasetFactory.prepare_dataset(folder, names, split_parts_ratio=parts, workers=1)
    kind = "sample_type:\n  __module__: megatron.energon\n  __class__: ImageClassificationSample\n"
    fields = "field_map:\n  image: pth\n  label: cls\n"
    module = "__module__: megatron.energon\n__class__: StandardWebdatasetFactory\n"
    (folder / ".nv-meta" / "dataset.yaml").write_text(module + kind + fields)
    return folder


class Savable:
    """A loader of energon with the two methods that a checkpoint looks for."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return ((batch.image, torch.tensor(batch.label)) for batch in self.loader)

    def state_dict(self):
        return {"state": pickle.dumps(self.loader.save_state_rank())}

    def load_state_dict(self, state):
        self.loader.restore_state_rank(pickle.loads(state["state"]))


@exact(
    "megatron-energon",
    "Data",
    "engine.run(Savable(get_savable_loader(data)), epoch_length=11)",
    warns="holds samples in a buffer",
    note="The warning is of energon's shuffle buffer, whose samples are in its state.",
)
def test_savable(folder):
    """A SavableDataLoader with a shuffle buffer, whose state a small class saves and loads."""
    data = get_train_dataset(
        prepared(folder),
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0),
        batch_size=4,
        shuffle_buffer_size=16,
        max_samples_per_sequence=None,
    )
    return trained_on(Savable(get_savable_loader(data)), epoch_length=11)
