"""Run on ranks: the example of a pipeline with half its batches, and two of them a step."""

import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import pipeline

pipeline.Update = partial(pipeline.Update, accumulate=2)
pipeline.BATCH //= 2
pipeline.main(sys.argv[1:])
