"""Fine-tuning, as its user runs it."""

import re
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "fine_tuning.py"


def test_with_ten_images_of_each_digit_the_thawed_body_reaches_80_percent(processes):
    result = processes.run(EXAMPLE)
    assert re.search(r"^body +10 +84,608 +84,608 +lr=0.001$", result.stdout, re.M)
    found = re.findall(r"after (\d+) epochs: ([\d.]+)%", result.stdout)
    after = {int(epochs): float(share) for epochs, share in found}
    assert list(after) == [0, 5, 10, 15, 20, 25, 30]
    assert after[0] < 40  # the new head knows nothing
    assert after[30] > 80
    assert after[30] > after[10]  # where the body was frozen
