"""A checkpoint as a directory of `torch.distributed.checkpoint` (DCP), by torch's own writer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from ...checkpoint import Saved
from ...checkpoint.directory import content_of_file, telling_new
from ...files import appearing, make_directory
from .directory import qualified


def export_dcp(saved: Saved, directory: str | Path, object: str | None = None) -> Path:
    """Write a checkpoint as a new directory for `torch.distributed.checkpoint.load`.

    It holds what `Saved.export` writes to a `.pt` file, with the states of optimizers under the
    names of their parameters.

    Args:
        saved: The checkpoint.
        directory: A new directory.
        object: The name of the one object to export; by default all.

    Raises:
        BrokenCheckpoint: A file is missing or damaged.
        OSError: The directory exists, or cannot be written.
        TypeError: A state holds a value that such a directory cannot.
        ValueError: The run had no object of that name, an object has the name of a number, or an
            optimizer changes parameters without a name.
    """
    directory = Path(directory)
    if directory.exists():
        raise FileExistsError(f"{directory} exists; name a directory that is new")
    content = content_of_file(saved, object, by_names)
    with telling_new(directory):
        make_directory(directory.absolute().parent)
        with appearing(directory) as temporary:
            write_dcp(content, temporary)
    return directory


def write_dcp(content: Any, directory: Path) -> None:
    """Write the content to a new directory, without a process group."""
    with warnings.catch_warnings(action="ignore"):  # one says that this process writes alone
        try:
            save(content, storage_writer=FileSystemWriter(directory), no_dist=True)
        except CheckpointException as error:  # no `Exception`, and its text is a page
            raise next(cause for cause, _ in error.failures.values()) from None


def by_names(name: str, state: Any, parameters: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """The state of an optimizer as torch's `get_state_dict` gives it, by names of parameters.

    Its groups are there in both forms: nested, and flat as torchtitan has them.
    """
    # Of tied weights, the first name counts.
    names = {index: key for key, index in reversed(qualified(parameters).items())}
    groups, flat = [], dict[str, Any]()
    for group in state["param_groups"]:
        if lost := {*group["params"]} - names.keys():
            raise ValueError(
                f"{name!r} changes parameters without a name, such as number {min(lost)}: put the "
                "module that has them into engine.objects, and save again"
            )
        groups.append({**group, "params": [names[index] for index in group["params"]]})
        for key in groups[-1]["params"]:
            flat |= {
                f"param_groups.{key}.{each}": group[each] for each in group.keys() - {"params"}
            }
    if any(key.isdigit() for key in names.values()):
        flat = {}  # a parameter that is called "0" looks like a group
    states = {names[index]: each for index, each in state["state"].items()}
    return {"state": states, "param_groups": groups, **flat}
