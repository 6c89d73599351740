"""A sample of random runs in processes of their own, which a real SIGKILL ends."""

import os
import pickle
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from random_runs.attempts import Story, attempt, compare, tell
from random_runs.draws import scripts
from random_runs.moments import Moments
from random_runs.outcomes import Outcome

# What is drawn may be what scripts are warned of; the runs of this process have no threads left.
pytestmark = pytest.mark.filterwarnings("ignore")


class Ending(Moments):
    """Ends its process at one moment of a run."""

    def _leave(self, torn):
        if torn is not None:
            os.truncate(self.place / torn, (self.place / torn).stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)


def in_child(plan, place, kill, totals, number):
    """One attempt in a process of its own: what it left, or None if it was killed."""
    told = place.with_name("told")
    if (process := os.fork()) == 0:
        story = Story(resumes=number)
        found = attempt(plan, Ending(place, place.with_name("left"), kill, totals), story)
        told.write_bytes(pickle.dumps((found[0], found[1].parts, story.batches)))
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status in {0, -signal.SIGKILL}
    return None if status else pickle.loads(told.read_bytes())


def left(plan, kills, root):
    """Run a plan in processes that are killed, and compare; the number of kills."""
    whole, parts, count = tell(plan, root / "whole"), Story(), 0
    (root / "run").mkdir()
    for number, kill in enumerate([*kills, None]):
        found = in_child(plan, root / "run", kill, whole.counts, number)
        count += found is None
    while found[0]:  # it was interrupted
        found = in_child(plan, root / "run", None, whole.counts, number)
    parts.outcome = parts.again = Outcome(found[1], {})
    parts.batches, parts.kills = found[2], Counter(interrupt=1)
    assert compare(whole, parts) is None
    return count


def sample(place, number):
    killed = []

    @seed(0)
    @given(script=scripts())
    @settings(
        max_examples=number,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def each(script):
        plan, kills = script
        killed.append(left(plan, kills, Path(place, str(len(killed)))))

    each()
    print(f"{len(killed)} runs were killed {sum(killed)} times")
    return sum(killed)


@pytest.mark.slow
def test_random_runs_whose_processes_are_killed_are_the_whole_runs(tmp_path):
    assert sample(tmp_path, 3) > 0


@pytest.mark.soak
def test_a_dozen_of_random_runs_whose_processes_are_killed_are_the_whole_runs(tmp_path):
    assert sample(tmp_path, 12) > 8


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_random_runs_whose_processes_are_killed_are_the_whole_runs(tmp_path):
    assert sample(tmp_path, 2000) > 1500
