"""The module that the configs name is found, as in the current folder of `camshaft run`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
