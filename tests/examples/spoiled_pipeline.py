"""Run on ranks: the example of a pipeline with one image that is not a number."""

import json
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import pipeline

plain = pipeline.data


def spoiled(count):
    found = plain(count)
    found.tensors[0][7] = torch.nan
    return found


pipeline.data = spoiled
state = pipeline.main(["--directory", sys.argv[1], "--samples", "328", "--epochs", "2"])
print(json.dumps({"iterations": state.iteration, "steps": state.step}))
