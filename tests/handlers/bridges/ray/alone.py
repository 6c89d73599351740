"""The run of the Ray example on two ranks that no Ray has started."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "examples"))
import ray_digits

from camshaft import ranks

with ranks.process_group():
    engine, loader, _ = ray_digits.build(sys.argv[1], lr=2e-3, max_epochs=int(sys.argv[2]))
    engine.run(loader, max_epochs=int(sys.argv[2]))
    del engine  # gloo's threads abort if DDP outlives the group
