"""The modules that are tried, where the tests can import them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
