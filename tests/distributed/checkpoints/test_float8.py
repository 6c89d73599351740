"""Training in torchao's float8, alone and on shards."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torchao.float8", exc_type=ImportError)
SCRIPT = Path(__file__).with_name("float8_on_ranks.py")


def told(results):
    return [json.loads(result.stdout.splitlines()[-1]) for result in results]


@pytest.mark.slow
def test_a_run_in_float8_resumes_to_the_same_bits(processes, tmp_path):
    (alone,) = told([processes.run(SCRIPT, tmp_path)])
    assert alone["left"][0] == 13
    assert alone["resumed"] == alone["whole"]


@pytest.mark.slow
def test_on_shards_too_and_an_optimizer_of_few_bits_is_refused_by_its_name(processes, tmp_path):
    first, second = told(processes.run_ranks(2, SCRIPT, tmp_path))
    assert first == second
    assert first["left"][0] == 13
    assert first["resumed"] == first["whole"]
    assert "optimizer.state.0.exp_avg is an OptimState8bit of torchao on shards" in first["error"]
    assert "an optimizer of torch.optim" in first["error"]
