"""nvidia-dali: pipelines in C++, here on a CPU."""

import numpy as np
from crossing import exact, told, trained_on


class Batches:
    """Batches of (features, classes) from a pipeline."""

    def __init__(self, folder):
        self.folder, self.files, self.epoch = folder, [], 0
        for i, row in enumerate(np.random.default_rng(5).normal(size=(44, 9)).astype("float32")):
            self.files.append(f"{i:02d}.npy")
            np.save(folder / self.files[-1], row)

    def made(self, seed):
        from nvidia.dali import fn, pipeline_def
        from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

        @pipeline_def(batch_size=4, num_threads=1, device_id=None, seed=seed)
        def pipeline():
            files = {"file_root": f"{self.folder}", "files": self.files}
            rows = fn.readers.numpy(**files, random_shuffle=True, initial_fill=16, name="rows")
            return rows + fn.random.normal(rows, stddev=0.1)

        whole = {"last_batch_policy": LastBatchPolicy.PARTIAL, "auto_reset": True}
        return DALIGenericIterator([pipeline()], ["rows"], reader_name="rows", **whole)


class Going(Batches):
    """One pipeline for all passes."""

    def __iter__(self):
        self.one = getattr(self, "one", None) or self.made(seed=0)
        for (batch,) in self.one:
            yield batch["rows"][:, :8], batch["rows"][:, 8].int().abs().long() % 4


class ByEpoch(Batches):
    """A new pipeline for each pass."""

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for (batch,) in self.made(seed=1 + self.epoch):
            yield batch["rows"][:, :8], batch["rows"][:, 8].int().abs().long() % 4


@told(
    "nvidia-dali-cuda120",
    "Data",
    "a new pipeline in each __iter__, with seed=1 + epoch, and set_epoch",
    match="gives something else",
    note="After a resume between epochs 1 and 2 nothing says so: epoch 1 begins as it did",
    silent=["killed after an epoch's end"],
)
def test_one_pipeline(folder):
    """One pipeline for all epochs, whose reader shuffles on."""
    return trained_on(Going(folder))


@exact(
    "nvidia-dali-cuda120",
    "Data",
    "a new pipeline in each __iter__, with seed=1 + epoch, and set_epoch",
)
def test_by_epoch(folder):
    """A new pipeline for each epoch, whose reader shuffles and whose operators draw."""
    return trained_on(ByEpoch(folder))
