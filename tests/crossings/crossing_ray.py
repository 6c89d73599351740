"""ray: data sets that are read by processes of their own."""

import numpy as np
from crossing import exact, trained_on


class Batches:
    """Batches of one pass, which a resume reads again."""

    def __init__(self, data):
        self.data = data
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        options = {"batch_size": 4, "local_shuffle_buffer_size": 16}
        seed = {"local_shuffle_seed": self.epoch}
        for rows in self.data.iter_torch_batches(**options, **seed):
            yield rows["features"], rows["label"]


@exact("ray", "Data", "iter_torch_batches(local_shuffle_seed=epoch), with set_epoch", fresh=True)
def test_local_shuffle(folder):
    """Batches of ray.data with a shuffle buffer that the epoch seeds, in their order."""
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    features = np.random.default_rng(5).normal(size=(44, 8)).astype("float32")
    rows = [{"features": row, "label": int(row[:4].argmax())} for row in features]
    return trained_on(Batches(ray.data.from_items(rows).materialize()))
