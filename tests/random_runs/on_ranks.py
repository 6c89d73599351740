"""Runs of a plan on two ranks: the whole one, and one that is left again and again."""

import faulthandler
import os
import pickle
import signal
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch.distributed.tensor import DTensor

from camshaft import ranks

from . import steps
from .attempts import MOST, Story, attempt, compare, seed_all
from .moments import Kill, Killed, Moments
from .outcomes import Outcome, kept
from .plans import NAMES, Plan

RANKS = 2
SECONDS = 60
"""For an attempt, which hangs if it takes longer."""


@dataclass(frozen=True)
class Leave:
    """How to leave a run: both ranks are killed, or `on` some ranks it raises or is interrupted."""

    how: str
    kill: Kill
    on: tuple[int, ...]


@dataclass(frozen=True)
class PlanOnRanks(Plan):
    """A run on ranks, with `options` of `ranks.prepare`; `R` is the rank, `W` the number of all."""

    options: str = ""

    def build(self, place):
        rank, net = ranks.rank(), steps.net
        seed_all(torch.initial_seed() + 1000 * rank)
        options = eval(f"dict({self.options})")

        def prepared(*arguments):
            return ranks.prepare(net(*arguments), **options)

        with patch.dict(NAMES, R=rank, W=RANKS), patch.object(steps, "net", prepared):
            return super().build(place)


@dataclass
class OnRank(Moments):
    """Leaves the run on one rank, or all ranks at once by SIGKILL."""

    processes: tuple[int, ...] = ()
    """Those of all ranks if they are to be killed."""

    def _leave(self, torn):
        if torn is not None:
            os.truncate(self.place / torn, (self.place / torn).stat().st_size // 2)
        for each in sorted(self.processes, key=os.getpid().__eq__):  # itself last
            os.kill(each, signal.SIGKILL)


def told_by_rank(plan, place, leave, totals, number):
    """One attempt on this rank: what it has to tell."""
    rank, story = ranks.rank(), Story(resumes=number)
    kill = leave.kill if leave and rank in leave.on else None
    moments = OnRank(place, place, kill, totals)
    processes = ranks.gathered(os.getpid())
    if leave and leave.how == "kill":
        moments.processes = processes
    told = {"batches": story.batches, "counts": moments.counts, "error": None, "outcome": None}
    try:
        if found := attempt(plan, moments, story):
            told["is interrupted"], outcome = found
            if rank:
                del outcome.parts["files"]  # which rank 0 may still be writing
            told["outcome"] = local(outcome.parts)
    except Exception as error:
        told["error"] = "".join(traceback.format_exception(error))
    return told | {"is left": moments.is_left}


def local(value):
    """Nested values, with this rank's parts of tensors on all ranks."""
    if isinstance(value, DTensor):
        return value.to_local()
    if isinstance(value, dict):
        return {name: local(each) for name, each in value.items()}
    return [local(each) for each in value] if type(value) is list else value


def start(launch, plan, place, leave, totals, number):
    """One attempt on both ranks, in processes of their own: what each tells, None if killed.

    The fixture `processes` can `launch` them as torchrun does.
    """
    store, children = launch.rank_store(), []
    for rank in range(RANKS):
        file = place.with_name(f"told {rank}")
        file.unlink(missing_ok=True)
        if (process := os.fork()) == 0:
            try:
                os.environ.update(launch.rank_environment(store, rank, RANKS))
                faulthandler.dump_traceback_later(SECONDS, exit=True)
                # A rank that has ended waits in vain for one that raises behind its last message.
                left = (Killed, RuntimeError) if leave and leave.how == "raise" else ()
                with suppress(*left), ranks.process_group("gloo", timeout=2 * SECONDS):
                    told = told_by_rank(plan, place, leave, totals[rank], number)
                    if told["outcome"] is None and left:
                        raise Killed  # out of the group, as the error of a script
                file.write_bytes(pickle.dumps(told))
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
        children.append((process, file))
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process, _ in children]
    assert set(codes) in ({0}, {-signal.SIGKILL}), f"{leave}: the ranks ended with {codes}"
    return [pickle.loads(file.read_bytes()) if not any(codes) else None for _, file in children]


def tell(launch, plan, root, leaves=(), totals=None):
    """Run a plan to its end on both ranks, and start it once more: a story for each rank."""
    stories, place, waiting = [Story() for _ in range(RANKS)], root / "run", list(leaves)
    place.mkdir(parents=True)
    for number in range(MOST):
        leave = waiting.pop(0) if waiting else None
        if leave and len(leave.on) > 1 and totals[0][leave.kill.at] != totals[1][leave.kill.at]:
            leave = None  # they would not be left at the same place
        found = start(launch, plan, place, leave, totals or [Counter()] * RANKS, number)
        for rank, (story, told) in enumerate(zip(stories, found, strict=True)):
            story.resumes += number > 0
            if told is None or (leave and told["is left"]):
                story.kills[leave.how] += 1
            if told:
                story.batches += told["batches"]
                story.counts = story.counts or told["counts"]
            if told and told["error"]:
                is_caused = found[1 - rank]["is left"] and "failed first" in told["error"]
                assert is_caused, told["error"]
        if all(told and told["outcome"] and not told["is interrupted"] for told in found):
            break
    again = start(launch, plan, place, None, [Counter()] * RANKS, MOST)
    assert not any(told["error"] for told in again), again[0]["error"] or again[1]["error"]
    for story, told, once_more in zip(stories, found, again, strict=True):
        story.outcome, story.again = Outcome(told["outcome"], {}), Outcome(once_more["outcome"], {})
        story.kept = kept(place)
    return stories


def check(launch, plan, leaves, root):
    """Run a plan whole, and left at each of the places: the same; return how the second went."""
    whole = tell(launch, plan, root / "whole")
    parts = tell(launch, plan, root / "parts", leaves, [each.counts for each in whole])
    for rank in range(RANKS):
        told = compare(whole[rank], parts[rank])
        assert told is None, f"rank {rank}: {told}"
    return sum((each.kills for each in parts), Counter(resumes=parts[0].resumes))
