"""xbatcher: parts of xarray's arrays."""

import numpy as np
from crossing import exact, trained_on
from torch.utils.data import DataLoader


@exact("xbatcher", "Data", "DataLoader(MapDataset(x, y), batch_size=None, shuffle=True)")
def test_map_dataset(folder):
    """A MapDataset over two BatchGenerators, in two workers."""
    import xarray
    from xbatcher import BatchGenerator
    from xbatcher.loaders.torch import MapDataset

    features = np.random.default_rng(5).normal(size=(44, 8)).astype("float32")
    table = xarray.Dataset({"x": (("n", "k"), features), "y": ("n", features[:, :4].argmax(1))})
    parts = [BatchGenerator(table["x"], {"n": 4, "k": 8}), BatchGenerator(table["y"], {"n": 4})]
    return trained_on(DataLoader(MapDataset(*parts), batch_size=None, shuffle=True, num_workers=2))
