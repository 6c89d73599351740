"""The hand-written step with two optimizers and an event of its own."""

import re
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "gan.py"


def test_the_generator_learns_and_every_optimizer_has_its_clock(processes):
    result = processes.run(EXAMPLE)
    assert "GanEvents.CRITIC_UPDATED" in result.stdout
    assert "1280 iterations, 1280 critic updates, 640 generator steps" in result.stdout
    reports = re.findall(r"^iteration (\d+), generator step (\d+): (.*)$", result.stdout, re.M)
    assert [(int(a), int(b)) for a, b, _ in reports] == [
        *((320, 159), (640, 319), (960, 479), (1280, 639), (1280, 640))
    ]
    distance = float(re.search(r"distance from 0 ([\d.]+)", reports[-1][2])[1])
    assert 1.5 < distance < 2.5
