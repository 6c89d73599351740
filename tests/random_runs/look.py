"""Drawn runs, one after another, and what is said of the first that differs."""

import time
import traceback
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, seed, settings

from .attempts import check

SHRINKING = 30
"""Seconds in which to look for a smaller run that differs."""


@dataclass
class Look:
    """Draws plans and kills, and compares each run that was left with the whole one.

    The first difference is printed at once, as text that can be run again. For so many seconds
    a smaller one is looked for; after that no new run counts as different, so that a test that
    fails ends in time.
    """

    shrinking: float = SHRINKING
    check: object = check
    counts: Counter = field(default_factory=Counter)
    told: dict = field(default_factory=dict)
    """What was found of the runs that differ, by their text."""
    until: float = float("inf")

    def at(self, drawn, number, seeded=0):
        """Look at so many drawn runs, the same each time; without a seed other ones each time."""

        @given(script=drawn)
        @settings(
            max_examples=number,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        def look(script):
            text = "check({!r}, {!r})".format(*script)
            found = self.found(text, *script)
            assert found is None, f"{found}\n{text}"

        (look if seeded is None else seed(seeded)(look))()

    def found(self, text, plan, kills):
        """What differs in this run, or None."""
        if text in self.told or time.monotonic() > self.until:
            return self.told.get(text)
        try:
            story = self.check(plan, kills)
        except Exception as error:
            self._note(text, error)
        else:
            self.counts.update(story.kills + Counter(draws=1, resumes=story.resumes))
        return self.told.get(text)

    def _note(self, text, error):
        if not self.told:
            self.until = time.monotonic() + self.shrinking
            print(f"{text}\n{error}", flush=True)
        self.told[text] = "".join(traceback.format_exception(error))
