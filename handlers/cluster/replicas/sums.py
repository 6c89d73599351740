"""Sums over the shards of a batch, with the same bits whoever has computed which shard.

Floating-point sums depend on their order. So the shards of a batch are the leaves of a tree that
does not depend on the number of replicas, and each sum is the sum of its two halves. A replica
computes neighbouring shards, and sends the sums of the largest subtrees that it has whole: one for
1, 2, 4 or 8 replicas and 8 shards.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ..transfer import Lost

Node = tuple[int, int]
"""A subtree: its first shard, and the one after its last."""
SHORT = 4096
"""The bytes of a letter that one message holds; a longer one takes two."""


def halves(node: Node) -> tuple[Node, Node]:
    """The two subtrees of a node of several shards.

    >>> halves((0, 5))
    ((0, 3), (3, 5))
    """
    middle = (node[0] + node[1] + 1) // 2
    return (node[0], middle), (middle, node[1])


def dealt(shards: int, index: int, count: int) -> list[Node]:
    """The largest subtrees of the shards that one of `count` replicas computes.

    >>> dealt(8, 0, 2), dealt(8, 1, 3), dealt(8, 3, 9)
    ([(0, 4)], [(2, 4), (4, 5)], [(2, 3)])
    """
    begin, end = index * shards // count, (index + 1) * shards // count

    def cover(node: Node) -> list[Node]:
        if begin <= node[0] and node[1] <= end:
            return [node]
        if node[1] <= begin or end <= node[0]:
            return []
        first, second = halves(node)
        return [*cover(first), *cover(second)]

    return cover((0, shards))


def sum_over(node: Node, leaf: Callable[[Node], Tensor | None]) -> Tensor:
    """The sum over a subtree; `leaf` gives the sums that are known, and None for others."""
    found = leaf(node)
    if found is not None:
        return found
    first, second = halves(node)
    total = sum_over(first, leaf)
    return total.add_(sum_over(second, leaf))


class Group:
    """The connections to the other replicas of a step, by gloo."""

    def __init__(self, address: str, timeout: float) -> None:
        """Connect to nobody yet; have a store where others find one another.

        Both listen at this address alone.
        """
        self._dist: Any = import_module("torch.distributed")
        self._c10d: Any = import_module("torch._C._distributed_c10d")
        self._address, self._limit = address, timedelta(seconds=timeout)
        listening = socket.create_server((address, 0))
        port = listening.getsockname()[1]
        self._store = self._dist.TCPStore(
            *(address, port, None, True, self._limit),
            wait_for_workers=False,
            master_listen_fd=listening.detach(),
        )
        self.store: str = f"{address}:{port}"
        self._group: Any = None
        self.key: str = ""
        """What the connected replicas know; empty if there is no connection."""
        self.index: int = 0
        self.count: int = 1

    def connect(self, key: str, store: str, index: int, count: int) -> None:
        """Connect to the replicas that know this key, and to no others.

        Raises:
            Lost: One of them has not come.
        """
        self.abort()
        self.index, self.count = index, count
        if count > 1:
            host, _, port = store.rpartition(":")
            options = self._c10d.ProcessGroupGloo._Options()
            options._devices = [self._c10d.ProcessGroupGloo.create_device(hostname=self._address)]
            options._timeout = self._limit
            try:
                found = self._dist.TCPStore(host, int(port), None, False, self._limit)
                found = self._dist.PrefixStore(key, found)
                self._group = self._c10d.ProcessGroupGloo(found, index, count, options)
            except RuntimeError as error:
                raise Lost(f"a replica has gone before the step: {error}") from error
        self.key = key

    def abort(self) -> None:
        """Disconnect, so that those who wait for this replica do so no longer."""
        group, self._group, self.key = self._group, None, ""
        if group is not None:
            group.abort()

    def letters(self, own: Any) -> list[Any]:
        """What each replica says, as JSON, in their order.

        Raises:
            Lost: One of them has gone.
        """
        if self._group is None:
            return [json.loads(json.dumps(own))]
        content = json.dumps(own).encode()
        size = SHORT
        while True:
            sent = len(content).to_bytes(8, "little") + content[: size - 8]
            found = self._gathered(torch.frombuffer(bytearray(sent.ljust(size)), dtype=torch.uint8))
            texts = [each.numpy().tobytes() for each in found]
            longest = 8 + max(int.from_bytes(each[:8], "little") for each in texts)
            if longest <= size:
                return [_of_letter(each) for each in texts]
            size = longest

    def total(
        self, own: Mapping[Node, Tensor], shards: int, length: int, dtype: torch.dtype
    ) -> Tensor:
        """The sum over all shards, of this replica's sums over subtrees and those of the others.

        Each replica adds up one part of all elements, as wide as the others', and gets the others'
        sums of theirs: what it sends and receives does not grow with the number of replicas.

        Raises:
            Lost: A replica has gone.
        """
        if self._group is None:
            return sum_over((0, shards), own.get)
        count, owners = self.count, [dealt(shards, i, self.count) for i in range(self.count)]
        width = -(-length // count)
        sent = torch.zeros(count, len(own), width, dtype=dtype)
        for place, node in enumerate(sorted(own)):
            padded = torch.nn.functional.pad(own[node], (0, width * count - length))
            sent[:, place] = padded.view(count, width)
        sizes = [len(each) * width for each in owners]
        got = torch.empty(sum(sizes), dtype=dtype)
        self._wait(
            lambda group: group.alltoall_base(
                got, sent.view(-1), sizes, [len(own) * width] * count, self._c10d.AllToAllOptions()
            )
        )
        rows = got.view(-1, width)
        nodes = [node for each in owners for node in each]
        parts = {node: rows[place] for place, node in enumerate(nodes)}
        whole = self._gathered(sum_over((0, shards), parts.get))
        return torch.cat(whole)[:length]

    def _gathered(self, own: Tensor) -> list[Tensor]:
        found = [torch.empty_like(own) for _ in range(self.count)]
        self._wait(lambda group: group.allgather([found], [own], self._c10d.AllgatherOptions()))
        return found

    def _wait(self, send: Callable[[Any], Any]) -> None:
        try:
            send(self._group).wait()
        except RuntimeError as error:
            raise Lost(f"a replica has gone in the step: {error}") from error


def _of_letter(content: bytes) -> Any:
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size])


def in_a_row(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of tensors of one type, one after the other, on the CPU."""
    return torch.cat([each.detach().reshape(-1) for each in tensors]).cpu()
