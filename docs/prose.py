"""Find what does not read as an engineer writes: make lint.

proselint looks for its own words, and for ours, which are in docs/prose.toml.
"""

import re
import sys
import tomllib
from pathlib import Path

from proselint.checks import (
    archaism,
    hedging,
    malapropisms,
    misc,
    needless_variants,
    nonwords,
    redundancy,
    weasel_words,
)
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, types
from proselint.tools import LintFile, LintResult

ROOT = Path(__file__).parents[1]
WORDS = tomllib.loads((ROOT / "docs" / "prose.toml").read_text())
ROOMS = (
    *(archaism, hedging, malapropisms, misc, needless_variants),
    *(nonwords, redundancy, weasel_words),
)
"""The checks of proselint that suit technical pages, without the slow ones."""
NOT_PROSE = re.compile(r"```.*?```|`[^`\n]*`|<!--.*?-->|<[^>]*>|\]\([^)]*\)", re.DOTALL)
"""Code, comments, elements, and the targets of links."""


def pages() -> list[Path]:
    """The pages that users read."""
    found = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    return sorted(page for page in found if str(page.relative_to(ROOT)) not in WORDS["left_out"])


def checks() -> tuple[Check, ...]:
    """The checks of proselint, and ours."""
    spaced = {phrase.replace(" ", r"\s+"): advice for phrase, advice in WORDS["instead"].items()}
    ours = Check(
        check_type=types.PreferredForms(items=spaced), path="camshaft", message="'{1}': {0}"
    )
    return (*(check for room in ROOMS for check in room.__register__), ours)


CheckRegistry().register_many(checks())


def findings(page: Path) -> list[LintResult]:
    """What is found in the prose of a page, by line."""
    text = NOT_PROSE.sub(lambda found: re.sub(r"[^\n]", "~", found.group()), page.read_text())
    enabled = DEFAULT | {"checks": DEFAULT["checks"] | {"camshaft": True}}
    return LintFile(page, text).lint(enabled)


def main() -> int:
    """Print what is found; 1 if there is anything."""
    found = [(page.relative_to(ROOT), each) for page in pages() for each in findings(page)]
    for name, each in found:
        print(f"{name}:{each.pos[0]}:", " ".join(each.check_result.message.split()))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
