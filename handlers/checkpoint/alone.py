"""The run of one rank, saved and resumed by itself: its state, and what it has made so far."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...engine import State, ranks
from .directory import Saved, read_checkpoint, write_checkpoint
from .format import TRAIN, Encoder, Manifest, decode, installed_versions, reading
from .load import validate_run
from .snapshot import Snapshot, take_part
from .staging import streamed


def save_alone(
    state: State[Any, Any],
    directory: Path,
    made: Mapping[str, Any],
    reason: str,
    numbers: Mapping[str, float],
) -> Saved:
    """Save this rank's run, and what it has `made`, each in a file; wait for the disk.

    The `numbers` are in the manifest, so they can be read without opening these files.

    Raises:
        OSError: Nothing was written.
        TypeError: A value cannot be saved.
    """
    tree, tensors, _ = take_part(state)
    files, objects = {TRAIN: tensors}, dict[str, Any]()
    for name, each in made.items():
        encoder = Encoder(name)
        objects[name] = {"file": name, "content": encoder.encode(each)}
        files[name] = encoder.tensors
    snapshot = Snapshot({"objects": objects, "run": [tree]}, files)
    manifest = Manifest(
        iteration=state.iteration,
        epoch=state.epoch - state.control.in_epoch,
        reason=reason,
        metrics=dict(numbers),
        world_size=ranks.world_size(),
        versions=installed_versions(),
    )
    return write_checkpoint(directory, streamed(snapshot), manifest)


def resume_alone(state: State[Any, Any], saved: Saved) -> None:
    """Resume a run that `save_alone` has saved: for handlers of LOADING.

    Raises:
        BrokenCheckpoint: A file cannot be read, or holds no run.
    """
    with reading(saved.path):
        tree, tensors = read_checkpoint(saved)
        run = decode(tree["run"][0], tensors[TRAIN])
        validate_run(run)
    state.load_state_dict(run)
