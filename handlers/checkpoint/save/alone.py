"""The run of one rank, saved and resumed by itself: its state, and what it has made so far."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....engine import State
from ..directory import Saved, read_part, write_checkpoint
from ..format import TREE, Encoder, Manifest, installed_versions, rank_file, reading
from ..load import SavedRun
from .stage import streamed
from .take import Snapshot, take_part


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
    part, own = take_part(state), rank_file(0)
    files, objects = {own: part.tensors}, dict[str, Any]()
    for name, each in made.items():
        encoder = Encoder(name)
        objects[name] = {"file": name, "content": encoder.encode(each)}
        files[name] = encoder.tensors
    trees = {TREE: {"objects": objects}, f"{own}.json": {"run": part.tree, "buffers": {}}}
    manifest = Manifest(
        iteration=state.iteration,
        epoch=state.epoch - state.in_epoch,
        reason=reason,
        metrics=dict(numbers),
        versions=installed_versions(),
    )
    return write_checkpoint(directory, streamed(Snapshot(trees, files)), manifest)


def resume_alone(state: State[Any, Any], saved: Saved) -> None:
    """Resume a run that `save_alone` has saved: for handlers of LOADING.

    Raises:
        BrokenCheckpoint: A file cannot be read, or holds no run.
    """
    with reading(saved.path):
        part, tensors = read_part(saved, 0)
        run, _ = SavedRun.of_part(part, tensors)
    state.load_state_dict(run)
