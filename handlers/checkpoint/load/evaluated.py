"""The weights of a checkpoint in an engine's modules, for the length of an evaluation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from ....engine import ranks
from ....engine.modules import all_modules, evaluate_saved, fully_sharded, is_copy, reshard
from ..directory import Saved, checkpoints, chosen, find
from ..format import Keep, reading
from ..weights import load_weights, weights
from .check import mismatches
from .read import VerifyingReader, in_memory, objects_at

logger: logging.Logger = logging.getLogger("camshaft")
Versions = tuple[int, ...] | None
_untouched: WeakKeyDictionary[Any, Versions] = WeakKeyDictionary()
"""By engine: the versions of its weights when a handler that resumes was attached."""


class EvaluatesSaved:
    """The methods of a handler of checkpoints that `Engine.evaluate` calls."""

    directory: str | Path
    keep: Keep
    resume: bool | str | Path | None

    @contextmanager
    def holding(self, objects: Mapping[str, Any], which: str | Path) -> Generator[None]:
        """Let the modules among the objects hold the weights of a checkpoint.

        Args:
            objects: By the names that they have in the checkpoint.
            which: `"latest"`, `"best"`, or the path of a checkpoint or of a directory of them.

        Raises:
            FileNotFoundError: There is no such checkpoint.
            ValueError: The checkpoint does not fit, or `keep` has not exactly one `best(...)`.
        """
        once = VerifyingReader()
        found = chosen(lambda verify: self._find(which, verify), once.verify)
        path = found.path
        with ranks.on_all_ranks(f"read {path}"), reading(path):
            states = objects_at(found, objects, once.tensors)
        own = {name: each for name, each in objects.items() if isinstance(each, Module)}
        own = {n: each for n, each in own.items() if n in states or not is_copy(each)}
        saved = {name: states[name] for name in own if name in states}
        with ranks.on_all_ranks(f"load {path}"):
            if lines := mismatches(own, saved):
                raise ValueError(f"{path} does not fit this script:\n  " + "\n  ".join(lines))
        managed = fully_sharded(objects.values())
        reshard(managed)
        kept = {name: _kept(each) for name, each in own.items()}
        try:
            for name, each in own.items():
                load_weights(each, saved[name])
            for name in states.keys() - own.keys():
                groups = states[name].get("param_groups", ())
                if name in objects:
                    evaluate_saved(objects[name], partial(in_memory, states[name]))
                elif any(each.get("train_mode") is True for each in groups):
                    logger.warning(
                        "%s holds the weights that %s trains, not those to evaluate: name the "
                        "optimizer in Engine(..., objects=...), or evaluate an Export",
                        *(path, name),
                    )
            yield
        finally:
            reshard(managed)
            for name, each in own.items():
                load_weights(each, kept[name])

    def remember_weights(self, engine: Any) -> None:
        """Remember the versions of the weights that the script has made."""
        if self.resume:
            _untouched[engine] = _versions(engine.objects)

    def forget_weights(self, engine: Any) -> None:
        """Forget them, as the engine runs: later evaluations need no warning."""
        _untouched.pop(engine, None)

    def warn_of_unloaded(self, engine: Any) -> None:
        """Warn once of an evaluation that comes before a load, if there is a checkpoint to load."""
        noted = _untouched.pop(engine, None)
        if noted is None or noted != _versions(engine.objects) or ranks.rank() > 0:
            return
        if checkpoints(self.directory):
            logger.warning(
                "the evaluation measures the weights that the script made: %s holds checkpoints, "
                "and nothing was loaded in this process. engine.evaluate(loader, "
                "checkpoint='latest') measures those of the newest one; engine.run loads it",
                self.directory,
            )

    def _find(self, which: str | Path, verify: Callable[[Saved], None]) -> Saved:
        place = Path(self.directory if which in ("latest", "best") else which)
        if which == "best" and len(self.keep.bests) != 1:
            raise ValueError(f"checkpoint='best' needs one best(...) in keep; it is {self.keep!r}")
        claim = self.keep.bests[0] if which == "best" else None
        found = find(place, verify, claim) if place.exists() else None
        if found is None:
            raise FileNotFoundError(
                f"checkpoint={str(which)!r}: {place} holds no checkpoint to evaluate; name "
                "'latest', 'best', a checkpoint or a directory of them"
            )
        return found


def _kept(module: Module) -> dict[str, Any]:
    """A copy of a module's weights, without lazy ones, which have no values yet."""
    return {
        name: each.detach().clone() if isinstance(each, Tensor) else deepcopy(each)
        for name, each in weights(module).items()
        if not is_lazy(each)
    }


def _versions(objects: Mapping[str, Any]) -> Versions:
    """The version counter of each weight; None if torch keeps none."""
    own = (each for module in all_modules(objects.values()) for each in module.parameters(False))
    try:
        return tuple(each._version for each in own)
    except RuntimeError:  # made in inference mode
        return None
