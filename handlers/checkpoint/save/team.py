"""The ranks that write one checkpoint: what they agree on and report, and whether they are alike.

Weights have to be the same on all ranks, since a checkpoint has one copy of whole tensors, that of
rank 0. What else may differ is saved for each rank that has it otherwise: buffers, such as the
running means of a batch norm under DDP, and states of other objects, such as an optimizer that
divides its momentum among the ranks, a replay buffer, or a sampler.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from ....engine import few, ranks
from ....engine.modules import fully_sharded, plain_names, reshard, unwrap
from ...files import beside, created, remove_path
from ..directory import remove_share
from ..format import CHUNK, Checksums, ManyChecksums, Payload, least_chunk
from ..sharding import is_sharded
from ..weights import checksum, checksums, named_parameters_of, weights

logger: logging.Logger = logging.getLogger("camshaft")

GRACE = 4.0
"""Seconds that a run which ends with an error waits for other ranks, which may be gone."""
SECONDS = 5.0
"""Seconds that a rank looks for a file made on another host: network file systems are slow."""
SHARE = 256
"""The ranks of which one removes files of old checkpoints: what is left of thousands takes long."""
Files = Mapping[str, Checksums]
SHOWN = 4
"""Weights and ranks that an error names."""
Sums = dict[tuple[str, str], int]
"""By object and weight: checksums of values that must be bitwise equal on all ranks."""
Buffers = dict[str, dict[str, Tensor]]
"""By object and plain name."""


class Team:
    """The ranks that write to one directory. One process is a team of one, and sends nothing.

    At a commit point, the ranks agree on a save by messages whose number and size are constant. A
    thread takes part in no such message: it reports to rank 0 by a letter.
    """

    def __init__(self, directory: Path, *, is_alone: bool) -> None:
        """Agree on nothing yet; with `is_alone`, this rank writes without the others."""
        self._directory = directory
        self._is_alone = is_alone
        self._session = ""
        """A random number that all ranks share, for the names of temporary directories."""
        self._saves = 0
        self._chunk = CHUNK
        """The bytes of a file that have one checksum in a report, at least."""
        self._told = ""
        """Where rank 0 has last said what to remove."""
        self._given_up: float | None = None
        """When the run ended with an error; other ranks may be gone since then."""

    @cached_property
    def size(self) -> int:
        """How many ranks write a part of each checkpoint."""
        return 1 if self._is_alone else ranks.world_size()

    @cached_property
    def rank(self) -> int:
        """The number of this rank among them."""
        return 0 if self._is_alone else ranks.rank()

    @property
    def is_first_here(self) -> bool:
        """True for the one rank that locks this rank's directory, and commits to it."""
        return self._is_first

    @cached_property
    def _is_first(self) -> bool:
        return ranks.rank() == 0

    def all(self, task: str) -> AbstractContextManager[None]:
        """What one rank raises inside is raised on all."""
        return ranks.on_all_ranks(task) if self.size > 1 else nullcontext()

    def open(self) -> None:
        """Check that all ranks see the directory of rank 0: else it would lack the parts of some.

        Raises:
            FileNotFoundError: A rank sees another directory: on all ranks.
            OSError: Rank 0 cannot write to the directory.
        """
        probe = beside(self._directory / "iteration-0", "tmp")
        self._session = probe.name.rpartition("-")[2]
        if self.size == 1:
            return
        with self.all(f"write to {self._directory}"):
            if self.rank == 0:
                with created(probe):
                    pass
        own = socket.gethostname(), str(self._directory)
        try:
            name, host, place = ranks.gathered((probe.name, *own))[0]
            seen = ranks.gathered((_is_there(self._directory / name), *own))
        finally:
            if self.rank == 0:
                with suppress(OSError):
                    probe.unlink()
        self._session = str(name).rpartition("-")[2]
        if blind := [rank for rank, (is_there, *_) in enumerate(seen) if not is_there]:
            _, other, theirs = seen[blind[0]]
            raise FileNotFoundError(
                f"rank {few(blind, 8)} (first on {other}, in {theirs}) does not see what rank 0 "
                f"writes on {host} in {place}: several ranks write one checkpoint together, so "
                "they need one directory. Name a folder that all hosts share, by the same absolute "
                "path on each; if there is none, LocalCheckpoint(...) writes to a disk of each host"
            )

    def temporary(self, iteration: int) -> Path:
        """Where all ranks write the next save: a hidden name, removed if the run is killed."""
        self._saves += 1
        unique = f"{int(self._session, 16) ^ self._saves:032x}"
        return self._directory / f".tmp-iteration-{iteration:010d}-{unique}"

    def give_up(self) -> None:
        """Note that the run ended with an error: wait at most `GRACE` seconds for silent ranks."""
        self._given_up = time.monotonic()

    def all_have(self, files: Mapping[str, Payload] | None, digest: int) -> bool:
        """True on every rank if each has files to write; learns how large all of them are.

        Raises:
            RuntimeError: A rank has another digest than rank 0: on all ranks.
        """
        if self.size == 1:
            return files is not None
        own = files or {}
        numbers = [int(files is None), sum(each.size for each in own.values()), len(own), digest]

        def decide(rows: Tensor) -> Tensor:
            total = rows.sum(0)
            total[3] = (rows[:, 3] != rows[0, 3]).int().argmax()  # the first that differs, or 0
            return total

        lacking, size, count, odd = ranks.decided(numbers, decide)
        if odd and not lacking:
            raise RuntimeError(
                f"rank {odd} saves other objects, or distributes them otherwise, than rank 0: "
                "several ranks make one checkpoint only of the same objects on one mesh"
            )
        self._chunk = least_chunk(size, count)
        return not lacking

    def report(
        self, temporary: Path, written: Files | None, failure: BaseException | None
    ) -> Files | None:
        """Tell rank 0 what this rank has written, or why not; on rank 0, what all have written.

        Raises:
            OSError: On rank 0: a rank could not write, or did not report.
            BaseException: On other ranks, and in a team of one: the failure.
        """
        if self.size > 1:
            said: dict[str, Any] = {"rank": self.rank}
            if written is None:
                said["failed"] = f"rank {self.rank} on {socket.gethostname()}: {failure}"
            else:
                folded = {name: each.folded(self._chunk) for name, each in written.items()}
                said["files"] = {name: [each.size, *each.crc32] for name, each in folded.items()}
            ranks.post(temporary.name, json.dumps(said))
            if self.rank == 0 and (failure is None or isinstance(failure, OSError)):
                return self._collected(temporary)  # it raises this rank's failure with the others'
        if failure is not None:
            raise failure
        return written if self.size == 1 else None

    def _collected(self, temporary: Path) -> Files:
        letters = ranks.collected(temporary.name, self.size, self._is_over)
        found, failed = ManyChecksums(), dict[int, str]()
        silent = {*range(self.size)}
        for letter in letters:  # one by one: other threads run in between
            said = json.loads(letter)
            silent.discard(said["rank"])
            if "failed" in said:
                failed[said["rank"]] = said["failed"]
            for name, (size, *sums) in said.get("files", {}).items():
                found.add(name, size, sums)
        failures = [failed[rank] for rank in sorted(failed)]
        if silent:
            failures.append(f"rank {few(silent, 8)} did not tell that it has written")
        if failures:
            shown = "; ".join(failures[:3]) + ("; ..." if len(failures) > 3 else "")
            raise OSError(
                f"could not write the checkpoint {temporary}: {shown}. Older ones are as they were"
            )
        return found.in_order()

    def remove(self, temporary: Path, condemned: Collection[Path]) -> None:
        """Remove directories; after a save, one of each `SHARE` ranks removes a share of the files.

        Rank 0 says which; the other ranks wait until it has.
        """
        number, rest = divmod(self.rank, SHARE)
        if rest:
            return
        box, names = f"{temporary.name}/condemned", [each.name for each in condemned]
        try:
            if self.size > SHARE and self.rank == 0:
                ranks.remove_letters(self._told)
                self._told = box
                ranks.post(box, json.dumps(names))
            elif self.size > SHARE:
                names = json.loads("".join(ranks.read_letters(box, 1, self._is_over)) or "[]")
        except OSError as error:  # the run has ended; the next one removes them
            logger.warning("files of old checkpoints may stay in %s: %s", self._directory, error)
        for name in names:
            if self.size > SHARE:
                remove_share(self._directory / name, number, -(-self.size // SHARE))
            else:
                remove_path(self._directory / name)

    def _is_over(self) -> bool:
        """True once silent ranks are no longer waited for."""
        return self._given_up is not None and time.monotonic() - self._given_up > GRACE


def _is_there(path: Path) -> bool:
    until = time.monotonic() + SECONDS
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def check_same_weights(objects: Mapping[str, Any]) -> None:
    """Compare the parameters of modules over all ranks; they all have to call this.

    Buffers may differ, and are saved for each rank. Ranks that hold the same send two messages of
    16 bytes.
    """
    if ranks.world_size() == 1:
        return
    own = _sums(objects)
    numbers = [_digest([*own]), _digest([*own.values()])]
    if all(ranks.decided(numbers, lambda rows: (rows == rows[0]).all(0))):
        return
    first = ranks.from_first(own)
    odd = [each for each in [*first, *own] if own.get(each) != first.get(each)]
    found = ranks.gathered((len({*odd}), list(dict.fromkeys(odd))[:SHOWN]))
    raise ValueError(_difference(found))


def _sums(objects: Mapping[str, Any]) -> Sums:
    found: Sums = {}
    reshard(fully_sharded(objects.values()))  # after a forward pass alone
    for name in sorted(objects):
        if isinstance(objects[name], Module):
            own = named_parameters_of(objects[name])
            whole = {key for key, each in own.items() if is_dense(each)}
            sums = checksums(objects[name], whole) if whole else {}
            found |= {(name, key): sums[key] for key in sorted(sums)}
    return found


def is_dense(parameter: Tensor) -> bool:
    """True for plain tensors in memory; shards, packed tensors and the like are not compared."""
    if is_lazy(parameter) or type(parameter.detach()) is not Tensor:
        return False
    return not parameter.is_meta and str(parameter.layout) == "torch.strided"


def _digest(values: list[Any]) -> int:
    return int(sha256(repr(values).encode()).hexdigest()[:12], 16)


def _difference(found: list[tuple[int, list[tuple[str, str]]]]) -> str:
    others = [rank for rank, (count, _) in enumerate(found) if count]
    count, odd = found[others[0]]
    who = f"rank{'s' * (len(others) > 1)} {few(others, SHOWN)}"
    names = ", ".join(f"{key!r} of objects[{name!r}]" for name, key in odd)
    more = f" and {count - len(odd)} more" if count > len(odd) else ""
    return (
        f"the weights of the ranks are not those of one model: {who} and rank 0 hold other values "
        f"of {names}{more}, and a checkpoint would hold those of rank 0 alone. If the ranks train "
        "one model, wrap it: DistributedDataParallel(model), or fully_shard(model), before the "
        "optimizer is made. If they average it now and then, save when they have; if a function "
        "changes weights or settings, let it do so on all ranks. If each rank trains a model or a "
        "stage of its own, let it run and save inside `with ranks.alone():`, by a Checkpoint in a "
        "directory of its own"
    )


def buffers_of_own(objects: Mapping[str, Any]) -> Buffers:
    """The buffers of this rank that differ from rank 0's; all ranks have to call this.

    Their checksums are compared, in one message.
    """
    buffers = _buffers_of(objects) if ranks.world_size() > 1 else {}
    if not buffers:
        return {}
    own = torch.stack([checksum(each) for each in buffers.values()])
    first = own.clone()
    ranks.share([first])
    differs = (own != first).tolist()
    found: Buffers = {}
    for ((name, key), buffer), is_own in zip(buffers.items(), differs, strict=True):
        if is_own:
            found.setdefault(name, {})[key] = buffer
    return found


def _buffers_of(objects: Mapping[str, Any]) -> dict[tuple[str, str], Tensor]:
    """The saved buffers of modules, without distributed ones, which belong to no single rank."""
    found = dict[tuple[str, str], Tensor]()
    for name, each in objects.items():
        if isinstance(each, Module):
            inner = unwrap(each)
            if buffers := dict(inner.named_buffers(remove_duplicate=False)):
                names, saved = plain_names(inner, buffers), weights(each)
                for key, buffer in buffers.items():
                    if names[key] in saved and not is_sharded(buffer):
                        found[name, names[key]] = buffer
    return found
