"""Exports: the weights of one object, without the run, or what `save_pretrained` writes of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import Module

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ...engine.modules import evaluating, fully_sharded, has_shards, put_together, reshard, unwrap
from .directory import Directory, checkpoints
from .format import TENSORS, TREE, Keep, Payload, latest, stream_of, tensors_in
from .save import Depot, OnFailure, SavingHandler, Snapshot, take

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class Export(SavingHandler):
    """Write the weights of one object, beside a `Checkpoint` or without one.

    Of a sharded model, rank 0 writes the same file: it asks the other ranks for their parts of one
    tensor at a time, and the run waits meanwhile.

    An export is a directory like a checkpoint, written and kept in the same way. It holds
    `<object>.safetensors`, and `state.json` and `manifest.json` that describe it. An export that no
    claim would keep is not written, so `keep=best(1, ...)` leaves just the best one. No run can
    resume from an export, and `state.save("why")` does not write one.

    A checkpoint of the same moment appears after the export, so a run that is killed between the
    two resumes from an earlier checkpoint and makes the export again.

    Args:
        directory: Where to write the exports: not the directory of a `Checkpoint`.
        object: The name of one of the engine's objects.
        pretrained: True to write what Hugging Face's `from_pretrained` reads, such as
            `model.safetensors` and `config.json`, by the object's own `save_pretrained`: for models
            of transformers and diffusers, and adapters of peft. The run waits until that is done;
            then the files are written like those of any export.
        when: When to export.
        keep: Which to keep: `latest(2) | best(1, "val/loss") | every(10_000)`.
        background: False to write on the thread that trains.
        retries: How often a write that failed is tried again.
        on_failure: `"raise"` to end the run, `"warn"` to go on without that export.

    Raises:
        TypeError: `keep` is not made of `latest`, `best` and `every`.
        ValueError: The directory is the address of an object store.

    >>> from camshaft.handlers import best
    >>> Export("runs/best", keep=best(1, "val/accuracy", mode="max")).object
    'model'
    """

    writes_files: ClassVar[bool] = True
    is_mirrored = False

    directory: str | Path
    _: KW_ONLY
    object: str = "model"
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    keep: Keep = latest(1)
    pretrained: bool = False
    background: bool = True
    retries: int = 3
    on_failure: OnFailure = "raise"

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Lock before the run, ask by the trigger, and export when asked."""
        engine.on(Events.LOADING)(self.open)
        engine.on(Events.STARTED)(self.warn_of_others)
        engine.on(self.when, stage=Stage.REPORT)(self.ask)
        engine.on(Events.SAVING, stage=Stage.ACT)(self.save)  # begun before a `Checkpoint` saves
        # Before all other handlers of CLOSED, so that they can read the last export.
        engine.on(Events.CLOSED, stage=Stage.MEASURE)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Lock the directory for this run."""
        if self.object not in state.engine.objects:
            known = ", ".join(map(repr, state.engine.objects)) or "none"
            raise ValueError(
                f"Export(object={self.object!r}): needs one of the engine's objects: {known}"
            )
        if self.pretrained:
            _check_pretrained(self.object, state.engine.objects[self.object])
        self.recorder(state).depot.open()

    def warn_of_others(self, state: State[Any, Any]) -> None:
        """Warn a new run that claims also count the exports of an earlier run."""
        if state.is_new and ranks.rank() == 0 and (found := checkpoints(self.directory)):
            logger.warning(
                "%s holds exports of an earlier run, such as %s; those of this one are kept or "
                "dropped together with them. Choose another directory if that is not meant",
                *(self.directory, found[-1].path.name),
            )

    def save(self, state: State[Any, Any]) -> None:
        """Copy the weights if an export was asked for; the copy is written in the background."""
        own = {self.object: state.engine.objects[self.object]}
        if not (reasons := self.recorder(state).prepare(state, own)):
            return
        with evaluating(state.engine):
            if not self._is_sharded(state):
                with ranks.on_all_ranks("export weights"):
                    if ranks.rank() == 0:
                        self._record(state, reasons, partial(take, own, state.engine.lent))
                return
            with ranks.on_all_ranks("take the weights to export"):
                snapshot = take(own, state.engine.lent)
                ((file, tensors),) = snapshot.tensors.items()
            # Rank 0 has one whole tensor in memory at a time.
            with ranks.on_all_ranks("export weights"), put_together(tensors) as whole:
                if whole is not None:
                    ready = {f"{file}{TENSORS}": stream_of(tensors, whole.__getitem__)}
                    make = partial(Snapshot, snapshot.trees, {}, ready=ready)
                    self._record(state, reasons, make, whole)

    def _record(
        self,
        state: State[Any, Any],
        reasons: list[str],
        make: Callable[[], Snapshot],
        whole: Mapping[str, Tensor] | None = None,
    ) -> None:
        recorder, own = self.recorder(state), state.engine.objects[self.object]
        if self.pretrained:
            make = partial(_pretrained, recorder.depot.directory, self.object, own, whole)
        recorder.record(state, make, reasons)

    def depot(self, state: State[Any, Any]) -> Depot:
        """The directory, to which rank 0 alone writes."""
        return Depot(self.directory, is_export=True)

    def has_thread(self, state: State[Any, Any]) -> bool:
        """False also for a sharded export: it sends to other ranks, which no thread may do."""
        return self.background and not self._is_sharded(state)

    def _is_sharded(self, state: State[Any, Any]) -> bool:
        objects = state.engine.objects
        reshard(fully_sharded(objects.values()))  # the object may be a part of the model
        own = objects[self.object]
        return ranks.is_distributed() and isinstance(own, Module) and has_shards(own)


def _check_pretrained(name: str, own: Any) -> None:
    """Refuse an object that has no `save_pretrained`."""
    inner = unwrap(own) if isinstance(own, Module) else own
    if not hasattr(inner, "save_pretrained"):
        raise ValueError(
            f"Export(object={name!r}, pretrained=True): the object is a {type(inner).__name__}, "
            f"which has no save_pretrained(); leave pretrained out to write {name}.safetensors"
        )


def _pretrained(
    directory: Path, name: str, module: Any, whole: Mapping[str, Tensor] | None = None
) -> Snapshot:
    """The files that `save_pretrained` writes, and the tree of plain values of an export.

    The files are written to a temporary place in `directory`, and then read into memory. `whole`
    are the weights of a sharded model.
    """
    with Directory(directory).scratch() as place:
        model: Any = unwrap(module)
        if whole is None:
            model.save_pretrained(place)
        else:
            model.save_pretrained(place, state_dict=whole)
        paths = sorted(path for path in place.iterdir() if path.is_file())
        files = {path.name: Payload.of(path.read_bytes()) for path in paths}
        objects = dict[str, Any]()
        if len(weights := [path for path in paths if path.name.endswith(TENSORS)]) == 1:
            content = {each: {"!tensor": each} for each in tensors_in(weights[0])}
            objects[name] = {"file": weights[0].stem, "content": content}
    return Snapshot({TREE: {"objects": objects}}, {}, ready=files)
