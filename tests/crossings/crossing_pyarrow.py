"""pyarrow: Parquet files and their row groups."""

import numpy as np
import pyarrow as pa
import torch
from crossing import exact, trained_on
from pyarrow import dataset, parquet


def written(folder, rows_a_group=11):

    features = np.random.default_rng(5).normal(size=(44, 8)).astype("float32")
    columns = {"features": list(features), "label": features[:, :4].argmax(1)}
    path = f"{folder}/table.parquet"
    parquet.write_table(pa.table(columns), path, row_group_size=rows_a_group)
    return path


def pairs(rows):
    features = torch.tensor(np.array([row["features"] for row in rows]), dtype=torch.float32)
    return features, torch.tensor([row["label"] for row in rows])


@exact("pyarrow", "Data", "engine.run(batches), whose __iter__ gives dataset.to_batches(...)")
def test_batches(folder):
    """Batches of pyarrow.dataset in their order, which a resume reads again."""

    class Batches:
        def __init__(self, path):
            self.data = dataset.dataset(path)

        def __iter__(self):
            for batch in self.data.to_batches(batch_size=4, use_threads=False):
                yield pairs(batch.to_pylist())

    return trained_on(Batches(written(folder, 44)))


@exact("pyarrow", "Data", "ShardedStream(range(file.num_row_groups), read, shuffle_buffer=16)")
def test_row_groups(folder):
    """Row groups of a Parquet file as the shards of a ShardedStream, which shuffles."""
    from camshaft import ShardedStream

    file = parquet.ParquetFile(written(folder))

    def read(group, start=0):
        return file.read_row_group(group).slice(start).to_pylist()

    stream = ShardedStream(range(file.num_row_groups), read, shuffle_buffer=16)
    return trained_on(torch.utils.data.DataLoader(stream, 4, collate_fn=pairs))
