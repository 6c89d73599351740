"""Names of torch without a promise: a torch that lacks them gives the same bits, more slowly."""

import json
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_torch_without_the_names_that_it_does_not_promise_trains_to_the_same_bits(processes):
    def run(how):
        script = Path(__file__).with_name("without_names.py")
        return json.loads(processes.run(script, how, fresh=True).stdout.splitlines()[-1])

    assert run("without") == run("with")
