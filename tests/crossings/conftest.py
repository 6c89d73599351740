"""Lets the files here import `crossing`, with the texts that pytest gives to its assertions."""

import sys
from pathlib import Path

import pytest

pytest.register_assert_rewrite("crossing")
sys.path.insert(0, str(Path(__file__).parent))
