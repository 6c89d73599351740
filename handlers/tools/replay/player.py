"""What a process of a replay does: follow the run to one iteration, and keep what was asked for."""

from __future__ import annotations

import os
import pdb
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import Any

from torch import Tensor
from torch.nn import Module

from ....engine import Engine, Events, Stage, State, few, ranks
from ....engine.modules import is_compiled, local, plain_names
from ...common import version_of
from ...journal import environment
from ..prove import Fingerprints, leaves

Note = Callable[[dict[str, Any]], None]
ELSEWHERE = (".bridges.trackers.", ".bridges.ray.", ".cluster.mirror.")
"""Rooms whose handlers write to servers and stores, where a replay would change the run's own."""


def play(asked: Mapping[str, Any], handler: Any, state: State[Any, Any], note: Note) -> None:
    """Follow the run of a `Checkpoint` that has just loaded, if it is the one that is asked for."""
    if os.path.realpath(handler.directory) == os.path.realpath(asked["run"]):
        versions = {name: version_of(name) or "none" for name in asked["versions"]}
        facts = {"iteration": state.iteration, "world_size": ranks.world_size()}
        note({"event": "begin", "environment": environment(), "versions": versions, **facts})
        if state.iteration != asked["from"]:
            sys.exit(0)
        for signal in state.engine.signals.values():
            for each in signal.subscriptions:
                kind = type(getattr(each.function, "__self__", None))
                if kind.__name__ != "TensorBoard" and any(r in kind.__module__ for r in ELSEWHERE):
                    signal.disconnect(each.function)
        state.engine.add(Player(asked, note))


@dataclass(frozen=True, eq=False)
class Player:
    """Looks at one iteration, and ends the process after it."""

    asked: Mapping[str, Any]
    note: Note

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write the fingerprints, keep what modules return, or stop in a debugger; end the run."""
        at, asked = self.asked["iteration"], self.asked
        named = [pair for pattern in asked["keep"] for pair in self._named(engine, pattern)]
        engine.add(Fingerprints(asked["row"], when=Events.ITERATION_STARTED(at=at)))
        if named:
            listen = partial(self._listen, dict(named))
            engine.on(Events.ITERATION_STARTED(at=at), stage=Stage.REPORT)(listen)
        if asked["pdb"]:
            if engine.around is not None:
                self._refuse("--pdb: another handler calls the process function of this run")
            engine.around = self._debug
        engine.on(Events.ITERATION_COMPLETED(at=at), stage=Stage.REPORT)(self.stop)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.leave)

    def stop(self, state: State[Any, Any]) -> None:
        """End the run, without its epoch."""
        state.stop("camshaft replay", resumable=True)

    def leave(self, state: State[Any, Any]) -> None:
        """Say how far the run came; leave the script if that is far enough."""
        self.note({"event": "close", "iteration": state.iteration})
        if state.error is None and state.iteration >= self.asked["iteration"]:
            sys.exit(0)

    def _debug(self, process: Callable[..., Any], state: State[Any, Any], batch: Any) -> Any:
        if state.iteration != self.asked["iteration"]:
            return process(state, batch)
        debugger = Debugger()
        try:
            return debugger.runcall(process, state, batch)
        finally:
            if debugger.is_left:
                self._refuse("--pdb was left before the iteration was computed; c computes it")

    def _refuse(self, problem: str) -> None:
        self.note({"event": "refused", "problem": problem})
        raise ValueError(problem)

    def _named(self, engine: Engine[Any, Any], pattern: str) -> list[tuple[str, Module]]:
        """The modules whose names a pattern matches, with or without the name of the object."""
        models = {n: each for n, each in engine.objects.items() if isinstance(each, Module)}
        known = dict[str, Module]()
        for prefix, model in models.items():
            inside = dict(model.named_modules())
            plain = plain_names(model, inside)
            known |= {f"{prefix}.{plain[name]}".strip("."): each for name, each in inside.items()}
        found = [
            (name, each)
            for name, each in known.items()
            if any(fnmatchcase(n, pattern) for n in (name, name.partition(".")[2]))
        ]
        if not found:
            self._refuse(f"--keep {pattern!r}: no module has this name; some are {few(known)}")
        if any(map(is_compiled, models.values())):
            self._refuse("--keep: torch.compile puts modules together; leave compile= out for it")
        return found

    def _listen(self, named: Mapping[str, Module], state: State[Any, Any]) -> None:
        """Keep what modules return in this iteration, and write it when the iteration is over."""
        kept, moments = dict[str, Tensor](), state.control.moments
        assert moments is not None

        def keep(name: str, module: Module, given: Any, made: Any) -> None:
            for path, each in leaves(made):
                place, number = (first := f"{name}.{path}".rstrip(".")), 1
                while place in kept:  # a further call of the module
                    place, number = f"{first} {number + 1}", number + 1
                if isinstance(each, Tensor):
                    kept[place] = local(each).detach().cpu().clone().contiguous()

        def write(state: State[Any, Any]) -> None:
            for each in handles:
                each.remove()
            save: Any = import_module("safetensors.torch").save_file
            save(kept, self.asked["kept"].format(rank=ranks.rank()))

        handles = [each.register_forward_hook(partial(keep, name)) for name, each in named.items()]
        moments.add_check(Events.ITERATION_COMPLETED, write)


class Debugger(pdb.Pdb):
    """Knows whether it was left by `q` or the end of its input."""

    is_left: bool = False

    def set_quit(self) -> None:
        """Leave it, and the process function."""
        self.is_left = True
        super().set_quit()
