"""What lets Composer 0.32.1 be imported with a newer torch, without the client of its platform.

It imports torchvision, whose operators are declared by hand where its build is for another torch.
"""

import sys
from types import ModuleType

import torch

sys.modules["mcli"] = ModuleType("mcli")
library = torch.library.Library("torchvision", "FRAGMENT")
for operator in ("nms", "qnms"):
    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
