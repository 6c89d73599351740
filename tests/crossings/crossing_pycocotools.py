"""pycocotools: mean average precision of boxes, through torchmetrics."""

import torch
from crossing import exact
from crossing_faster_coco_eval import boxes


@exact("pycocotools", "Metrics", 'Metrics({"map": MeanAveragePrecision()}, select=pairs)')
def test_boxes(folder):
    """MeanAveragePrecision by pycocotools."""
    torch.manual_seed(0)
    return boxes("pycocotools")
