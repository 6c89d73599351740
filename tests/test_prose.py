"""The linter for prose finds what it should find."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
pytest.importorskip("proselint", reason='needs pip install "camshaft[lint]"')
prose = pytest.importorskip("prose")

PAGE = """<!-- search: goes on -->
# The run goes
on

Of so many iterations `is told` nothing; [the rest](goes-on.md) is described in
[a page](one's-own.md).

```python
print("for ever")
```

It may well, from time to time, wait for ever.
"""


@pytest.fixture
def found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    return [(each.pos[0], each.check_result.message) for each in prose.findings(page)]


def test_phrases_of_the_list_are_found_in_prose_also_over_two_lines_and_not_in_code(found):
    ours = [(line, message.split("'")[1].split()) for line, message in found if "': " in message]
    assert ours == [(2, ["goes", "on"]), (5, ["so", "many"]), (12, ["for", "ever"])]


def test_what_proselint_knows_is_found_too(found):
    assert (12, "'for ever' is archaic.") in found
