"""Names of torch without a promise: a torch that lacks them gives the same bits, more slowly."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_torch_without_the_names_that_it_does_not_promise_trains_to_the_same_bits():
    def run(how):
        script = Path(__file__).with_name("without_names.py")
        result = subprocess.run([sys.executable, script, how], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr[-3000:]
        return json.loads(result.stdout.splitlines()[-1])

    assert run("without") == run("with")
